"""Reads keys from the environment or a file, and keeps them out of everything that is stored or shown."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rowmill.errors import FailureKind, JobError
from rowmill.records import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rowmill.providers.presets import ResolvedEndpoint

# Headers that carry a credential, by their whole name or by the last word of it.  Any other header is data, whatever
# its value: to take it out of replies would tear words out of answers.
_CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "api-key", "apikey", "auth"})
_CREDENTIAL_WORDS = frozenset({"authorization", "auth", "key", "apikey", "token", "secret", "password", "credential"})
# A shorter "key" (EMPTY, none, x) is a placeholder, and replacing it would tear words out of answers.
_SHORTEST_SECRET = 8
_SURELY_NO_WORD = 20
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

    def explained(self, failure: Failure) -> Failure:
        """A refusal for want of a key says which key was not sent, and why."""
        name = self._endpoint.unsent_key_env
        if failure.kind is not FailureKind.CREDENTIALS or name is None or not self._environment.get(name, "").strip():
            return failure
        words = (
            f"no key was sent: {name} goes to its provider's own servers only; if it is meant for this one, too, say "
        )
        return replace(failure, message=f"{failure.message}; {words}--key-env {name}")

    @property
    def source(self) -> str:
        """Where the key comes from, fit to show."""
        if self._key_file is not None:
            return f"the key in {self._key_file}"
        name = self._endpoint.key_env
        return "no key" if name is None or not self._environment.get(name, "").strip() else f"the key in ${name}"

    def _read(self) -> tuple[Mapping[str, str], Sequence[bytes]]:
        headers = {"content-type": "application/json", **self._endpoint.headers}
        hidden = []
        key = self._key()
        if key is not None:
            auth = self._endpoint.auth
            headers |= {"authorization": f"Bearer {key}"} if auth == "bearer" else {auth: key}
            hidden.append(key)
        for name, value in self._extra.items():
            variable = value.strip("${}") if value.startswith("$") else ""
            if variable:
                value = self._variable(variable, f"the header {name}")
            if is_credential(name) or is_credential(variable):
                hidden += [value, value.rpartition(" ")[2]]  # with and without `Bearer `
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


def is_credential(name: str) -> bool:
    """Whether a header carries a credential, or a variable holds one, by its name."""
    name = name.strip().lower()
    return name in _CREDENTIAL_HEADERS or name.replace("_", "-").rpartition("-")[2] in _CREDENTIAL_WORDS


def spellings(secrets: Sequence[str]) -> Sequence[bytes]:
    """Every way a secret may be spelled inside a reply or a URL, the longest first."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            escaped = json.dumps(secret)[1:-1]
            found |= {secret, escaped, escaped.replace("/", "\\/"), quote(secret, safe="")}
    return tuple(spelled.encode() for spelled in sorted(found, key=len, reverse=True))


def redact(content: bytes, secrets: Sequence[bytes]) -> bytes:
    """`content` without the secrets; the same object where there are none in it.

    A secret that could be a word of an answer (short, letters only) is taken out where it stands by itself, any other
    one wherever it stands.
    """
    for secret in secrets:
        if secret in content:
            content = _taken_out(content, secret) if _like_a_word(secret) else content.replace(secret, _MASK)
    return content


def _like_a_word(secret: bytes) -> bool:
    return len(secret) < _SURELY_NO_WORD and secret.isalpha()


def _taken_out(content: bytes, secret: bytes) -> bytes:
    """Before it may stand a JSON escape such as `\\n`, whose letter is no part of the word."""
    alone = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))" + re.escape(secret) + rb"(?![A-Za-z0-9_])"
    return re.sub(alone, _MASK, content)
