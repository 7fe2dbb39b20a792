"""The heads of requests, made once, and the names of reply headers; must not know what is sent to whom."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowmill.io.http.origin import Origin

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_OURS = frozenset({"connection", "content-length", "transfer-encoding"})
_AS_THEY_ARE = "!#$%&'()*+,/:;=?@[]~"
_MOST_NAMES = 1000
# Of replies: what says how a reply travels or is for a browser.  Nobody here asks for it, so it is not decoded.
_PASSED_OVER = frozenset(
    {
        "access-control-allow-origin",
        "access-control-expose-headers",
        "alt-svc",
        "cf-cache-status",
        "cf-ray",
        "connection",
        "content-length",
        "keep-alive",
        "server",
        "set-cookie",
        "strict-transport-security",
        "transfer-encoding",
        "vary",
        "via",
        "x-content-type-options",
    }
)


class HeaderNames(dict[bytes, str]):
    """A name as it came -> in lower case, "" where nobody asks for it.

    Each is made once, as a server sends the same ones with every reply.
    """

    def __missing__(self, name: bytes) -> str:
        lower = name.lower().decode("latin-1")
        if lower in _PASSED_OVER:
            lower = ""
        if len(self) < _MOST_NAMES:
            self[name] = lower
        return lower


def request_head(url: str, origin: Origin, headers: Mapping[str, str]) -> bytes:
    """The head of a POST up to and with `content-length: `.  Raises ValueError, which never shows a value."""
    if origin.scheme not in ("http", "https") or not origin.port or origin.host == "?":
        raise ValueError("it must be http://HOST[:PORT]/... or https://HOST[:PORT]/...")
    parts = urlsplit(url)
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_AS_THEY_ARE)
    default_port = 443 if origin.scheme == "https" else 80
    fields = {
        "host": _ascii_host(origin) if origin.port == default_port else f"{_ascii_host(origin)}:{origin.port}",
        "user-agent": "rowmill",
        "accept": "*/*",
        "accept-encoding": "identity",
    }
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        fields["authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    fields.update((name.lower(), value) for name, value in headers.items() if name.lower() not in _OURS)
    lines = [f"POST {target} HTTP/1.1"]
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"the header name {name!r} has characters that cannot be sent")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the value of header {name!r} has characters that cannot be sent")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "content-length: "]).encode()


def _ascii_host(origin: Origin) -> str:
    host = origin.host if origin.host.isascii() else origin.host.encode("idna").decode("ascii")
    return f"[{host}]" if ":" in host else host
