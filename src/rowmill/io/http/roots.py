"""Finds the certificates that a user trusts besides the system's; must not know how they are used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rowmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def trusted_roots(ca_file: str | None, environment: Mapping[str, str]) -> Sequence[bytes]:
    """PEM certificates from `ca_file` and from the files that the environment names, each once.

    Raises JobError when `ca_file` is not there or holds no certificate; a variable that names no file is
    ignored, as every tool does.
    """
    found: dict[bytes, None] = {}
    if ca_file is not None:
        found.update(dict.fromkeys(_certificates(ca_file)))
    for path in (environment.get(name) for name in _VARIABLES):
        if path and Path(path).is_file():
            found.update(dict.fromkeys(_PEM.findall(Path(path).read_bytes())))
    return tuple(found)


def _certificates(path: str) -> Sequence[bytes]:
    try:
        certificates = _PEM.findall(Path(path).read_bytes())
    except OSError as fault:
        raise JobError(f"--ca-file {path}: {fault.strerror}") from None
    if not certificates:
        raise JobError(f"--ca-file {path}: no certificate in PEM form in it")
    return certificates
