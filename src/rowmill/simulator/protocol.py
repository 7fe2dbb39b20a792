"""One connection of the simulator: HTTP/1.1 in, whole, broken or slow replies out.  Decides nothing.

Requests on one connection are expected one after the other, as all HTTP clients send them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Protocol, cast

import httptools

from rowmill.simulator.script import Fault

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_DRIPS = 10


class Desk(Protocol):
    """Who decides what a connection answers."""

    def opened(self, connection: Connection) -> None: ...

    def received(self, connection: Connection, method: str, path: str, authorization: str, body: bytes) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One connection.  After `Desk.received` the desk answers with `send`, `reply` or not at all."""

    __slots__ = ("_authorization", "_body", "_desk", "_parser", "_path", "_timers", "transport")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._authorization = b""
        self._body: list[bytes] = []
        self._timers: list[asyncio.TimerHandle] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._desk.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self._desk.closed(self)

    def on_message_begin(self) -> None:
        self._path = self._authorization = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 13 and name.lower() == b"authorization":
            self._authorization = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._path.decode("latin-1").partition("?")[0]
        method = self._parser.get_method().decode("latin-1")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._desk.received(self, method, path, self._authorization.decode("latin-1"), body)

    def reply(self, status: int, headers: str, content: bytes) -> None:
        """Sends a whole reply.  `headers` are lines that end in CRLF."""
        self.transport.write(_head(status, headers, len(content)) + content)
        if not self._parser.should_keep_alive():
            self.transport.close()

    def cut(self, status: int, headers: str, content: bytes) -> None:
        """Announces a whole body, sends half of it and closes."""
        self.transport.write(_head(status, headers, len(content)) + content[: len(content) // 2])
        self.transport.close()

    def drip(self, status: int, headers: str, content: bytes, over_s: float) -> None:
        """Sends the head at once and the body in ten pieces spread over `over_s`."""
        self.transport.write(_head(status, headers, len(content)))
        size = -(-len(content) // _DRIPS)
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(over_s * (n + 1) / _DRIPS, self.transport.write, content[n * size : (n + 1) * size])
            for n in range(_DRIPS)
        ]

    def reset(self) -> None:
        """Sends RST."""
        connected = self.transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def send(self, fault: Fault, status: int, headers: str, content: bytes, drip_s: float) -> None:
        """Sends a reply in the way that the fault asks for."""
        if fault is Fault.CUT:
            self.cut(status, headers, content)
        elif fault is Fault.DRIP:
            self.drip(status, headers, content, drip_s)
        elif fault is Fault.RESET:
            self.reset()
        elif fault is not Fault.HANG:
            self.reply(status, headers, content)


def _head(status: int, headers: str, length: int) -> bytes:
    reason = _REASONS.get(status, b"Status")
    return b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n\r\n" % (
        status,
        reason,
        headers.encode("latin-1"),
        length,
    )
