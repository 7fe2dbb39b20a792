"""One HTTP/1.1 connection: writes a request, reads its reply; must not know of pools, names or certificates."""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from rowmill.core.replies import failures
from rowmill.io.http.encodings import TooLargeError, unpacked
from rowmill.io.http.known_heads import HEAD_END
from rowmill.records import RawReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowmill.io.http.exchange import Exchange
    from rowmill.io.http.known_heads import KnownHeads
    from rowmill.io.http.write_batch import WriteBatch
    from rowmill.records import Failure

_ONE_WRITE_BYTES = 64 * 1024
_PIECE_BYTES = 256 * 1024
_HEAD_BYTES = 256 * 1024
_PROBE_S = 30
_STALE_WITHIN_S = 1.0
_MOST_STALE_TRIES = 20


class Keeper(Protocol):
    """Who owns connections."""

    header_names: Mapping[bytes, str]
    known_heads: KnownHeads
    max_reply_bytes: int
    resends: bool
    write_batch: WriteBatch

    def opened(self, connection: Connection) -> None:
        """It can be aborted from now on."""

    def freed(self, connection: Connection) -> None:
        """It can carry another exchange."""

    def closing(self, connection: Connection) -> None:
        """It carries nothing any more; may be told twice."""

    def lost(self, connection: Connection) -> None:
        """Its socket is closed."""

    def try_again(self, exchange: Exchange) -> None:
        """The connection was stale: the exchange needs another."""


class _SecondReplyError(Exception):
    """Bytes that follow a whole reply and belong to no request."""


class Connection(asyncio.Protocol):
    """Carries one exchange at a time, any number one after the other.

    Invariant: with `exchange` None nothing may arrive; what does closes the connection.
    """

    __slots__ = (
        "_has_head",
        "_headers",
        "_is_kept",
        "_is_paused",
        "_is_used",
        "_keeper",
        "_outgoing",
        "_parser",
        "_pieces",
        "_read_bytes",
        "_sent_s",
        "_status",
        "_transport",
        "_unsent",
        "exchange",
        "freed_s",
        "is_open",
        "on_body",
        "on_header",
    )

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.exchange: Exchange | None = None
        self._transport: asyncio.Transport
        self.is_open = False
        self._is_paused = False
        self._outgoing = b""
        self._unsent: memoryview | None = None
        self.freed_s = self._sent_s = 0.0
        self._is_used = False
        self._read_bytes = 0
        self._status = 0
        self._has_head = False
        self._is_kept = True
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        # The parser calls these once a header and once a piece: C functions, no frame of Python.
        self.on_header = self._headers.__setitem__
        self.on_body = self._pieces.append
        self._parser: Any = httptools.HttpResponseParser(self)

    def start(self, exchange: Exchange) -> None:
        """Sends the request, together with what else the loop's turn brings.  Only on a connection that is free."""
        exchange.carrier = self
        self.exchange = exchange
        body = exchange.body
        if len(body) <= _ONE_WRITE_BYTES:
            self._outgoing = b"%b%d\r\n\r\n%b" % (exchange.head, len(body), body)
        else:
            self._outgoing = b"%b%d\r\n\r\n" % (exchange.head, len(body))
            self._unsent = memoryview(body)
        self._keeper.write_batch.put(self)

    def flush(self) -> None:
        """See `write_batch.Sender`."""
        if self.is_open:
            self._sent_s = perf_counter()
            self._transport.write(self._outgoing)
            self._outgoing = b""
            if self._unsent is not None:
                self._write_on()

    def drop(self, exchange: Exchange, found: Failure | None) -> None:
        """See `exchange.Carrier`."""
        if self.exchange is exchange:
            self._end(exchange, found)

    def close(self) -> None:
        """Closes at once; an exchange on it ends as lost."""
        if self.is_open:
            self.is_open = False
            self._keeper.closing(self)
            self._transport.abort()

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True
        self.freed_s = perf_counter()
        self._keeper.opened(self)
        _probe_when_idle(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None or self._outgoing:  # it answers nothing that was sent
            self.close()
            return
        known = self._keeper.known_heads
        if known and not self._read_bytes and self._unsent is None:
            end = data.find(HEAD_END) + len(HEAD_END)
            head = known.get(data[:end])
            if head is not None and len(data) - end == head.body_bytes:
                known.hits += 1
                self.freed_s = now_s = perf_counter()
                self._hand_over(exchange, RawReply(head.status, head.headers, data[end:], now_s - self._sent_s))
                return
        self._read_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as fault:
            if not self._status:
                self._end(exchange, failures.unreadable(f"{exchange.origin} does not speak HTTP/1.1: {fault}"))
                return
            self._is_kept = False  # the reply is whole, what follows it is not one
        if self._status:
            self._finish(exchange, data)
        elif self._read_bytes > self._keeper.max_reply_bytes + _HEAD_BYTES:
            self._end(exchange, _too_large(self._keeper.max_reply_bytes))

    def eof_received(self) -> None:
        if self.exchange is not None and self._ends_with_the_connection():
            self._status = self._parser.get_status_code()
            self._is_kept = False
            self._finish(self.exchange, b"")
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self.close()
        self._parser = None  # it holds methods of this object: a cycle
        self._unsent = None
        self._keeper.lost(self)
        if exchange is None:
            return
        exchange.carrier = None
        if self._has_head:
            self._settle(exchange, failures.unreadable(f"the reply from {exchange.origin} was cut short"))
        elif self._is_stale(exchange):
            exchange.stale_tries += 1
            self._keeper.try_again(exchange)
        else:
            why = "no byte of it came" if not self._read_bytes else "only a part of its head came"
            self._settle(exchange, failures.connection_reset(exchange.origin, why))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if not self._outgoing:
            self._write_on()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._status:
            raise _SecondReplyError  # stops the parser before it mixes the two
        self._has_head = False

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers.clear()
            self._has_head = False
        else:
            self._status = status
            self._is_kept = self._parser.should_keep_alive()

    # --- ends of an exchange ---

    def _finish(self, exchange: Exchange, last: bytes) -> None:
        """The parser has read a whole reply; `last` is what came of it last."""
        self.freed_s = now_s = perf_counter()
        names = self._keeper.header_names
        headers = {name: value.decode("latin-1") for raw, value in self._headers.items() if (name := names[raw])}
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        reply = RawReply(self._status, headers, body, now_s - self._sent_s)
        found: RawReply | Failure = reply
        if "content-encoding" in headers or len(body) > self._keeper.max_reply_bytes:
            found = _plain(reply, self._keeper.max_reply_bytes)
        if not self._is_kept or self._unsent is not None:
            self._end(exchange, found)
            return
        if found is reply and len(last) == self._read_bytes:
            self._keeper.known_heads.learn(last, reply)
        self._status = self._read_bytes = 0
        self._has_head = False
        self._headers.clear()
        pieces.clear()
        self._hand_over(exchange, found)

    def _hand_over(self, exchange: Exchange, found: RawReply | Failure) -> None:
        """Ends an exchange whose reply has left the connection as good as new."""
        self.exchange = exchange.carrier = None
        self._is_used = True
        self._keeper.freed(self)
        self._settle(exchange, found)

    def _end(self, exchange: Exchange, found: RawReply | Failure | None) -> None:
        self.exchange = exchange.carrier = None
        self.close()
        if found is not None:
            self._settle(exchange, found)

    @staticmethod
    def _settle(exchange: Exchange, found: RawReply | Failure) -> None:
        if not exchange.future.done():
            exchange.future.set_result(found)

    def _is_stale(self, exchange: Exchange) -> bool:
        """Whether the server closed a kept connection while the request was on its way.

        A stale connection tells so within one round trip; a server that dies at work usually takes longer, and
        what it has worked on may be billed.
        """
        # Another request may take the fresh connection and leave this one a kept one again: so more than one try.
        if self._read_bytes or exchange.stale_tries >= _MOST_STALE_TRIES:
            return False
        if self._outgoing:
            return True  # it never left
        return self._is_used and self._keeper.resends and perf_counter() - self._sent_s < _STALE_WITHIN_S

    def _ends_with_the_connection(self) -> bool:
        if not self._has_head:
            return False
        return not {b"content-length", b"transfer-encoding"} & {name.lower() for name in self._headers}

    def _write_on(self) -> None:
        while self._unsent is not None and not self._is_paused and self.is_open:
            piece, rest = self._unsent[:_PIECE_BYTES], self._unsent[_PIECE_BYTES:]
            self._unsent = rest if len(rest) else None
            self._transport.write(piece)


def _probe_when_idle(connected: socket.socket | None) -> None:
    """Replies may take minutes: without probes a router in between forgets the connection."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S)


def _plain(reply: RawReply, max_bytes: int) -> RawReply | Failure:
    """The reply unpacked, within the cap."""
    try:
        body = unpacked(reply.body, reply.headers.get("content-encoding", ""), max_bytes)
    except TooLargeError:
        return _too_large(max_bytes)
    except ValueError as fault:
        return failures.unreadable(f"the reply cannot be unpacked: {fault}", status=reply.status)
    return reply.replaced(body=body)


def _too_large(max_bytes: int) -> Failure:
    return failures.unreadable(f"the reply is larger than {max_bytes / 1e6:g} MB")
