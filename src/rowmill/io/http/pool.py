"""The connections to one origin and the exchanges that wait for one; must not know what is sent.

Decides first, does I/O after: every method here returns at once, only the dialling tasks wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from rowmill.core.replies import failures
from rowmill.io.http.connection import Connection
from rowmill.io.http.known_heads import KnownHeads
from rowmill.records import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rowmill.io.http.dialer import Dialer
    from rowmill.io.http.exchange import Exchange
    from rowmill.io.http.write_batch import WriteBatch

MOST_DIALLING = 100


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_connections` None is no limit.  `resends`: what was sent on a kept connection that the server had closed may
    be sent again unasked; one that did the work before it closed would be paid twice.
    """

    connect_timeout_s: float
    max_connections: int | None
    max_reply_bytes: int
    idle_s: float
    resends: bool = True


class Pool:
    """Hands exchanges to idle connections, last in first out, and opens more, at most 100 at a time.

    Invariant: an exchange is queued only while no connection is idle, or while it needs a fresh one that is
    being opened.
    """

    def __init__(
        self,
        dialer: Dialer,
        limits: PoolLimits,
        header_names: Mapping[bytes, str],
        write_batch: WriteBatch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.header_names = header_names
        self.known_heads = KnownHeads()
        self.write_batch = write_batch
        self.max_reply_bytes = limits.max_reply_bytes
        self.resends = limits.resends
        self._dialer = dialer
        self._limits = limits
        self._loop = loop
        self._idle: dict[Connection, None] = {}
        self._queue: deque[Exchange] = deque()
        self._connections: set[Connection] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Future[None] | None = None

    def submit(self, exchange: Exchange) -> None:
        """Sends it now or as soon as there is a connection for it."""
        if self._idle:
            self._idle.popitem()[0].start(exchange)
        else:
            self._queue.append(exchange)
            self._open_more()

    def exchanges(self) -> Iterator[Exchange]:
        """All that are queued or on a connection."""
        yield from self._queue
        for connection in self._connections:
            if connection.exchange is not None:
                yield connection.exchange

    async def close(self) -> None:
        """Closes all; returns when every socket is closed and no task is left."""
        self._all_lost = self._loop.create_future()
        if self._sweeper is not None:
            self._sweeper.cancel()
        dialling = list(self._dialling)
        for task in dialling:
            task.cancel()
        if dialling:
            await asyncio.wait(dialling)
        await self._dialer.close()
        while (exchange := self._next_queued()) is not None:
            exchange.future.set_result(failures.unreachable(exchange.origin, "it was given up"))
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            await self._all_lost

    # --- called by connections ---

    def opened(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        self._connections.add(connection)

    def freed(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        if self._queue:
            exchange = self._next_queued()
            if exchange is not None:
                connection.start(exchange)
                return
        self._idle[connection] = None
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def closing(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        self._connections.discard(connection)
        if self._all_lost is not None:
            if not self._connections and not self._all_lost.done():
                self._all_lost.set_result(None)
        elif self._queue:
            self._open_more()

    def try_again(self, exchange: Exchange) -> None:
        """See `connection.Keeper`.  Other idle connections may be as stale, so it waits for a fresh one."""
        if self._all_lost is not None:
            why = "it was given up"
            exchange.future.set_result(failures.connection_reset(exchange.origin, why))
            return
        self._queue.appendleft(exchange)
        self._open_more()

    # --- opening and closing ---

    def _open_more(self) -> None:
        wanted = min(len(self._queue), MOST_DIALLING)
        if self._limits.max_connections is not None:
            wanted = min(wanted, self._limits.max_connections - len(self._connections))
        for _ in range(wanted - len(self._dialling)):
            task = self._loop.create_task(self._dial())
            self._dialling.add(task)
            task.add_done_callback(self._dialling.discard)
        if wanted <= 0 and self._idle and (exchange := self._next_queued()) is not None:
            self._idle.popitem()[0].start(exchange)

    async def _dial(self) -> None:
        made: list[Connection] = []

        def make() -> Connection:
            made.append(Connection(self))
            return made[-1]

        dialled: Connection | Failure | None = None
        try:
            dialled = await self._dialer.dial(make)
        finally:
            for connection in made:
                if connection is not dialled:
                    connection.close()
        task = asyncio.current_task()
        assert task is not None
        self._dialling.discard(task)
        if isinstance(dialled, Failure):
            self._refuse(dialled)
        elif dialled.is_open:
            self.freed(dialled)
        if self._queue:
            self._open_more()

    def _refuse(self, failure: Failure) -> None:
        """Ends the first in the queue, and those who have waited for as long as a connection may take."""
        exchange = self._next_queued()
        now_s = perf_counter()
        while exchange is not None:
            exchange.future.set_result(failure)
            if not self._queue:
                return
            waited_s = now_s - (self._queue[0].deadline_s - self._queue[0].timeout_s)
            exchange = self._next_queued() if waited_s >= self._limits.connect_timeout_s else None

    def _next_queued(self) -> Exchange | None:
        while self._queue:
            exchange = self._queue.popleft()
            if not exchange.future.done():
                return exchange
        return None

    def _close_idle(self) -> None:
        """Closes what has been idle for too long; the oldest come first."""
        self._sweeper = None
        limit_s = perf_counter() - self._limits.idle_s
        for connection in list(self._idle):
            if connection.freed_s > limit_s:
                self._sweeper = self._loop.call_later(connection.freed_s - limit_s, self._close_idle)
                return
            connection.close()
