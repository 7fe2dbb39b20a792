"""Reads from the environment whether a proxy stands before an origin; must not know how to talk to one."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowmill.io.http.origin import Origin


def goes_through_a_proxy(origin: Origin, environment: Mapping[str, str]) -> bool:
    """By HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case; the loopback never does."""
    if origin.is_loopback:
        return False
    named = _first(environment, f"{origin.scheme}_proxy") or _first(environment, "all_proxy")
    if not named:
        return False
    exempt = (_first(environment, "no_proxy") or "").split(",")
    return not any(_covers(entry.strip().lower(), origin.host) for entry in exempt)


def _first(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) or environment.get(name.upper())


def _covers(entry: str, host: str) -> bool:
    """Whether a NO_PROXY entry (`*`, a domain with all below it, an address, a network) holds `host`."""
    if not entry:
        return False
    if entry == "*":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        domain = entry.removeprefix(".")
        return host == domain or host.endswith(f".{domain}")
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False
