"""The transport over `pyreqwest` (hyper and rustls); the one module where its exceptions are known.

What hyper does by itself: a pooled connection that the server has closed before the request was written is
replaced silently.  When the close crosses the request on its way, hyper gives up, and the error does not say
whether the connection was reused.  So the request is sent once more if and only if an earlier reply from this
server has come (there may be kept connections) and the loss was noticed within a second (a stale connection
answers within one round trip; a server that dies at work usually takes longer).

A cancelled `send` raises at once, but the library lets the request run on until its deadline.
"""

from __future__ import annotations

import os
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING

from pyreqwest import exceptions
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.http import HeaderMap

from rowmill.core.replies import failures
from rowmill.errors import JobError
from rowmill.io.http.encodings import MAX_REPLY_BYTES
from rowmill.io.http.origin import origin_of
from rowmill.io.http.roots import trusted_roots
from rowmill.records import Failure, RawReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyreqwest.response import Response

    from rowmill.io.http.origin import Origin

_STALE_WITHIN_S = 1.0
_IDLE_S = 30.0
_REMEMBERED = 64  # distinct header mappings and URLs; a run has a few


class PyreqwestTransport:
    """A pool of connections to any number of servers.  Header mappings given to `send` must not change later.

    Proxies come from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; the loopback never goes through one.
    Redirects are not followed, cookies not kept.  Raises JobError for a bad `ca_file`.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 10.0,
        ca_file: str | None = None,
        max_connections: int | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        resends: bool = True,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        roots = trusted_roots(ca_file, environment)

        def build(proxied: bool) -> Client:
            builder = (
                ClientBuilder()
                .follow_redirects(False)
                .referer(False)
                .user_agent("rowmill")
                .connect_timeout(timedelta(seconds=connect_timeout_s))
                .pool_idle_timeout(timedelta(seconds=_IDLE_S))
                # Replies may take minutes: without probes a router in between forgets the connection.
                .tcp_keepalive(timedelta(seconds=_IDLE_S))
                .max_connections(max_connections)
            )
            for root in roots:
                builder = builder.add_root_certificate_pem(root)
            return (builder if proxied else builder.no_proxy()).build()

        try:
            self._proxied = build(True)
            self._direct = build(False)
        except exceptions.PyreqwestError as fault:
            raise JobError(f"cannot set up HTTP: {_last_cause(fault)}") from None
        self._connect_timeout_s = connect_timeout_s
        self._resends = resends
        self._max_reply_bytes = max_reply_bytes
        self._header_maps: dict[int, tuple[Mapping[str, str], HeaderMap]] = {}
        self._origins: dict[str, Origin] = {}
        self._answered: set[str] = set()

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        """See `ports.Transport`."""
        origin = self._origins.get(url) or self._remember_origin(url)
        started_s = perf_counter()
        got = await self._attempt(url, origin, headers, body, timeout_s)
        if not isinstance(got, exceptions.PyreqwestError | ValueError):
            return got
        lost_after_s = perf_counter() - started_s
        may_be_stale = self._resends and origin.name in self._answered
        if may_be_stale and lost_after_s < _STALE_WITHIN_S and _is_lost_after_sending(got):
            got = await self._attempt(url, origin, headers, body, timeout_s - lost_after_s)
            if not isinstance(got, exceptions.PyreqwestError | ValueError):
                return got
        return failure_from(got, origin.name, timeout_s, self._connect_timeout_s)

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        await self._proxied.close()
        await self._direct.close()

    async def _attempt(
        self, url: str, origin: Origin, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RawReply | Failure | exceptions.PyreqwestError | ValueError:
        client = self._direct if origin.is_loopback else self._proxied
        started_s = perf_counter()
        try:
            request = (
                client.post(url)
                .headers(self._header_map(headers))
                .body_bytes(body)
                .timeout(timedelta(seconds=timeout_s))
                .build_streamed()
            )
            async with request as response:
                self._answered.add(origin.name)
                content = await self._body(response)
                if content is None:
                    limit_mb = self._max_reply_bytes / 1e6
                    return failures.unreadable(f"the reply is larger than {limit_mb:g} MB")
                latency_s = perf_counter() - started_s
                return RawReply(response.status, _plain_headers(response.headers), content, latency_s)
        except (exceptions.PyreqwestError, ValueError) as fault:
            return fault

    async def _body(self, response: Response) -> bytes | None:
        """The whole body, None when it is larger than the cap."""
        length = response.get_header("content-length")
        if length is not None and length.isdigit():
            if int(length) > self._max_reply_bytes:
                return None
            return bytes(await response.bytes())
        chunks, size = [], 0
        while (chunk := await response.body_reader.read_chunk()) is not None:
            chunks.append(bytes(chunk))
            size += len(chunk)
            if size > self._max_reply_bytes:
                return None
        return b"".join(chunks)

    def _header_map(self, headers: Mapping[str, str]) -> HeaderMap:
        known = self._header_maps.get(id(headers))
        if known is not None and known[0] is headers:
            return known[1]
        if len(self._header_maps) >= _REMEMBERED:
            self._header_maps.clear()
        made = HeaderMap(headers)
        # The mapping is kept so that its id stays its own.
        self._header_maps[id(headers)] = (headers, made)
        return made

    def _remember_origin(self, url: str) -> Origin:
        if len(self._origins) >= _REMEMBERED:
            self._origins.clear()
        self._origins[url] = origin = origin_of(url)
        return origin


def _plain_headers(headers: HeaderMap) -> dict[str, str]:
    try:
        return dict(headers)
    except ValueError:  # a value that is not ASCII
        plain = {}
        for name in headers.keys():  # noqa: SIM118 - iterating the map itself reads the values
            try:
                plain[name] = headers[name]
            except ValueError:
                continue
        return plain


# --- foreign errors ----------------------------------------------------------------------------------------


def failure_from(
    fault: exceptions.PyreqwestError | ValueError, origin: str, timeout_s: float, connect_timeout_s: float
) -> Failure:
    """The Failure that a foreign exception stands for; only its last cause is shown, as others hold URLs."""
    if not isinstance(fault, exceptions.PyreqwestError):
        return failures.unreachable(origin, f"the URL or a header is not valid: {fault}")
    stage = next(iter(_MAP[kind] for kind in type(fault).__mro__ if kind in _MAP))
    return stage(fault, origin, timeout_s, connect_timeout_s)


def _timed_out(fault: Exception, origin: str, timeout_s: float, connect_timeout_s: float) -> Failure:
    if _in_connecting(fault):
        return failures.unreachable(origin, f"no connection within {connect_timeout_s:g} s")
    return failures.timed_out(origin, timeout_s)


def _network(fault: Exception, origin: str, timeout_s: float, connect_timeout_s: float) -> Failure:
    if not _in_connecting(fault):
        return failures.connection_reset(origin, _last_cause(fault))
    why = _last_cause(fault)
    if "CaUsedAsEndEntity" in why:
        return failures.untrusted(origin, "its own certificate is marked as a CA's; make it with CA:FALSE")
    if any(word in why for word in _TLS_WORDS):
        return failures.untrusted(origin, why)
    return failures.unreachable(origin, why)


def _broken_body(fault: Exception, origin: str, timeout_s: float, connect_timeout_s: float) -> Failure:
    return failures.unreadable(f"the reply from {origin} was cut short or garbled: {_last_cause(fault)}")


def _unsendable(fault: Exception, origin: str, timeout_s: float, connect_timeout_s: float) -> Failure:
    return failures.unreachable(origin, _last_cause(fault))


_TLS_WORDS = ("certificate", "corrupt message", "fatal alert", "peer is incompatible", "peer misbehaved")

_MAP: Mapping[type[exceptions.PyreqwestError], Callable[[Exception, str, float, float], Failure]] = {
    exceptions.PyreqwestError: _unsendable,
    exceptions.DetailedPyreqwestError: _unsendable,
    exceptions.RequestError: _network,
    exceptions.StatusError: _broken_body,
    exceptions.RedirectError: _broken_body,
    exceptions.DecodeError: _broken_body,
    exceptions.BodyDecodeError: _broken_body,
    exceptions.JSONDecodeError: _broken_body,
    exceptions.TransportError: _network,
    exceptions.RequestTimeoutError: _timed_out,
    exceptions.ConnectTimeoutError: _timed_out,
    exceptions.ReadTimeoutError: _timed_out,
    exceptions.WriteTimeoutError: _timed_out,
    exceptions.PoolTimeoutError: _unsendable,
    exceptions.NetworkError: _network,
    exceptions.ConnectError: _network,
    exceptions.ReadError: _broken_body,
    exceptions.WriteError: _network,
    exceptions.ClientClosedError: _unsendable,
    exceptions.BuilderError: _unsendable,
    exceptions.RequestPanicError: _network,
}


def _causes(fault: Exception) -> list[str]:
    details = getattr(fault, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return [str(cause["message"]) for cause in causes or ()]


def _last_cause(fault: Exception) -> str:
    # The first cause names the whole URL.
    causes = _causes(fault)
    return causes[-1] if len(causes) > 1 else str(getattr(fault, "message", "unknown fault"))


def _in_connecting(fault: Exception) -> bool:
    return "client error (Connect)" in _causes(fault)


def _is_lost_after_sending(fault: Exception) -> bool:
    is_network = isinstance(fault, exceptions.ConnectError | exceptions.WriteError)
    return is_network and not isinstance(fault, exceptions.ConnectTimeoutError) and not _in_connecting(fault)
