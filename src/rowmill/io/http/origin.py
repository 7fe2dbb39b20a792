"""Says where a URL leads; must not know how one gets there."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit


class Origin(NamedTuple):
    """`name` is host:port, fit to show; `port` is 0 where the URL is not valid."""

    scheme: str
    host: str
    port: int
    name: str
    is_loopback: bool


def origin_of(url: str) -> Origin:
    """Where `url` leads; never raises."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or "?"
    except ValueError:
        return Origin("", "?", 0, "?:0", False)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    shown = f"[{host}]" if ":" in host else host
    return Origin(parts.scheme, host, port, f"{shown}:{port}", _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
