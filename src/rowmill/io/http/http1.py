"""The direct transport: HTTP/1.1 on the loop's own sockets, plain and TLS; must not know of proxies.

For what it is not made for (proxies, HTTP/2) there is the library's transport: see `open_transport`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from rowmill.core.replies import failures
from rowmill.errors import JobError
from rowmill.io.http.deadlines import Deadlines
from rowmill.io.http.dialer import Dialer
from rowmill.io.http.encodings import MAX_REPLY_BYTES
from rowmill.io.http.exchange import Exchange
from rowmill.io.http.heads import HeaderNames, request_head
from rowmill.io.http.origin import origin_of
from rowmill.io.http.pool import Pool, PoolLimits
from rowmill.io.http.roots import trusted_roots
from rowmill.io.http.write_batch import WriteBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rowmill.io.http.origin import Origin
    from rowmill.records import Failure, RawReply

_REMEMBERED = 64  # distinct pairs of URL and headers; a run has a few


class _Route(NamedTuple):
    """What is the same for all requests with one URL and one header mapping."""

    headers: Mapping[str, str]
    head: bytes
    origin: str
    pool: Pool
    new_future: Callable[[], asyncio.Future[RawReply | Failure]]


class DirectTransport:
    """A pool of connections an origin, on one loop.  Header mappings given to `send` must not change later.

    Redirects are not followed, cookies not kept.  `resends`: see `PoolLimits`.  Raises JobError for a bad `ca_file`.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 10.0,
        ca_file: str | None = None,
        max_connections: int | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        idle_s: float = 30.0,
        resends: bool = True,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._roots = trusted_roots(ca_file, environment)
        self._limits = PoolLimits(connect_timeout_s, max_connections, max_reply_bytes, idle_s, resends)
        self._context: ssl.SSLContext | None = None
        self._routes: dict[tuple[str, int], _Route] = {}
        self._pools: dict[tuple[str, str, int], Pool] = {}
        self._header_names = HeaderNames()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadlines: Deadlines
        self._write_batch: WriteBatch
        self._is_closed = False

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        """See `ports.Transport`."""
        route = self._routes.get((url, id(headers)))
        if route is None:
            try:
                route = self._open_route(url, headers)
            except ValueError as fault:
                return failures.unreachable(origin_of(url).name, f"the URL or a header is not valid: {fault}")
        if self._is_closed:
            return failures.unreachable(route.origin, "the transport is closed")
        deadline_s = perf_counter() + timeout_s
        self._deadlines.watch(deadline_s)
        exchange = Exchange(route.head, body, route.origin, timeout_s, deadline_s, route.new_future())
        try:
            route.pool.submit(exchange)
            return await exchange.future
        except asyncio.CancelledError:
            exchange.abandon()
            raise

    def prepare_tls(self) -> None:
        """Reads the certificates to trust, which takes 20 to 90 ms, now and not at the first TLS request.

        Raises JobError for one that cannot be read.
        """
        if self._context is None:
            self._context = _tls_context(self._roots)

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        self._is_closed = True
        for pool in self._pools.values():
            await pool.close()
        if self._loop is not None:
            self._deadlines.stop()

    def _in_flight(self) -> Iterator[Exchange]:
        for pool in self._pools.values():
            yield from pool.exchanges()

    def _open_route(self, url: str, headers: Mapping[str, str]) -> _Route:
        """Raises ValueError for a URL or a header that cannot be sent."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._deadlines = Deadlines(self._loop, self._in_flight)
            self._write_batch = WriteBatch(self._loop)
        origin = origin_of(url)
        head = request_head(url, origin, headers)
        if len(self._routes) >= _REMEMBERED:
            self._routes.clear()
        # The mapping is kept so that its id stays its own.
        route = _Route(headers, head, origin.name, self._pool(origin, self._loop), self._loop.create_future)
        self._routes[url, id(headers)] = route
        return route

    def _pool(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> Pool:
        key = (origin.scheme, origin.host, origin.port)
        pool = self._pools.get(key)
        if pool is None:
            if origin.scheme == "https":
                self.prepare_tls()
            dialer = Dialer(origin, self._context if origin.scheme == "https" else None, self._limits.connect_timeout_s)
            pool = self._pools[key] = Pool(dialer, self._limits, self._header_names, self._write_batch, loop)
        return pool


def _tls_context(roots: Sequence[bytes]) -> ssl.SSLContext:
    """Trusts the system's roots and these (PEM)."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    # As the library's transport: any trusted certificate ends a chain, and private roots, which often lack an
    # extension that newer Pythons insist on, are good enough.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    for root in roots:
        try:
            context.load_verify_locations(cadata=root.decode("ascii"))
        except (ssl.SSLError, ValueError) as fault:
            raise JobError(f"cannot set up HTTP: a certificate to trust cannot be read: {fault}") from None
    return context
