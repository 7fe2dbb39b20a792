"""Owns HTTP: request bytes in, status, headers and body out; must not know what the bytes mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rowmill.ports import Transport

TABLE: Mapping[str, str] = {
    "direct": "rowmill.io.http.http1:DirectTransport",
    "pyreqwest": "rowmill.io.http.pyreqwest_:PyreqwestTransport",
}


def open_transport(
    url: str,
    *,
    connect_timeout_s: float = 10.0,
    ca_file: str | None = None,
    max_connections: int | None = None,
    resends: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Transport:
    """The transport for requests to `url`: the direct one, or the library's where a proxy stands in between.

    `max_connections` None is no limit; without `resends` nothing is sent again unasked.  Raises JobError for a bad
    `ca_file` or another certificate that cannot be read.
    """
    from rowmill.io.http.lasting import import_for_good
    from rowmill.io.http.origin import origin_of
    from rowmill.io.http.proxies import goes_through_a_proxy

    origin = origin_of(url)
    name = "pyreqwest" if goes_through_a_proxy(origin, environment) else "direct"
    module, _, kind = TABLE[name].partition(":")
    load = import_for_good if name == "pyreqwest" and module not in sys.modules else import_module
    opened: Any = getattr(load(module), kind)(
        connect_timeout_s=connect_timeout_s,
        ca_file=ca_file,
        max_connections=max_connections,
        resends=resends,
        environment=environment,
    )
    if name == "direct" and origin.scheme == "https":
        opened.prepare_tls()
    transport: Transport = opened
    return transport
