"""Reads keys from the environment or a file, and keeps them out of everything that is stored or shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rowmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rowmill.providers.presets import ResolvedEndpoint

# A shorter "key" (EMPTY, none, x) is a placeholder, and replacing it would tear words out of answers.
_SHORTEST_SECRET = 8
_MASK = b"***"


class Credentials:
    """One endpoint's key and secret headers.  Reads them at once; raises JobError that names what is missing.

    `headers` are further headers; a value `$NAME` stands for that variable.  `secrets` are the byte strings that
    must not appear anywhere, as they are and as JSON and URLs spell them.
    """

    def __init__(
        self,
        endpoint: ResolvedEndpoint,
        *,
        key_file: str | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._endpoint = endpoint
        self._key_file = key_file
        self._extra = headers or {}
        self._environment = environment
        self.headers: Mapping[str, str]
        self.secrets: Sequence[bytes]
        self.headers, self.secrets = self._read()

    def reload(self) -> bool:
        """Reads environment and file again; True when something changed.  Raises JobError, and keeps the old."""
        headers, secrets = self._read()
        changed = headers != self.headers
        if changed:
            self.headers, self.secrets = headers, secrets
        return changed

    def _read(self) -> tuple[Mapping[str, str], Sequence[bytes]]:
        headers = {"content-type": "application/json", **self._endpoint.headers}
        hidden = []
        key = self._key()
        if key is not None:
            auth = self._endpoint.auth
            headers |= {"authorization": f"Bearer {key}"} if auth == "bearer" else {auth: key}
            hidden.append(key)
        for name, value in self._extra.items():
            if value.startswith("$"):
                value = self._variable(value.strip("${}"), f"the header {name}")
                hidden.append(value)
            headers[name.lower()] = value
        return headers, spellings(hidden)

    def _key(self) -> str | None:
        if self._key_file is not None:
            try:
                text = Path(self._key_file).expanduser().read_text("utf-8")
            except (OSError, UnicodeDecodeError) as fault:
                why = getattr(fault, "strerror", None) or "not text"
                raise JobError(f"the key file {self._key_file} cannot be read: {why}") from None
            return _clean(text, f"the key file {self._key_file}")
        name = self._endpoint.key_env
        if name is None:
            return None
        if not self._environment.get(name, "").strip():
            if self._endpoint.key_required:
                raise JobError(
                    f"no key for {self._endpoint.host}: set the environment variable {name}, "
                    "or name another with --key-env"
                )
            return None
        return _clean(self._environment[name], f"the variable {name}")

    def _variable(self, name: str, what: str) -> str:
        value = self._environment.get(name, "")
        if not value.strip():
            raise JobError(f"{what} needs the environment variable {name}, which is not set")
        return _clean(value, f"the variable {name}", may_hold_spaces=True)


def _clean(text: str, where: str, may_hold_spaces: bool = False) -> str:
    """A key without white space around it, fit to stand in a header."""
    key = text.strip().strip("\ufeff")
    if not key:
        raise JobError(f"{where} holds no key")
    if not key.isascii() or not key.isprintable() or (" " in key and not may_hold_spaces):
        raise JobError(f"{where} holds a space, a line break or an odd letter inside the key")
    return key


def spellings(secrets: Sequence[str]) -> Sequence[bytes]:
    """Every way a secret may be spelled inside a reply or a URL, the longest first."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            escaped = json.dumps(secret)[1:-1]
            found |= {secret, escaped, escaped.replace("/", "\\/"), quote(secret, safe="")}
    return tuple(spelled.encode() for spelled in sorted(found, key=len, reverse=True))


def redact(content: bytes, secrets: Sequence[bytes]) -> bytes:
    """`content` without the secrets; the same object where there are none in it."""
    for secret in secrets:
        if secret in content:
            content = content.replace(secret, _MASK)
    return content
