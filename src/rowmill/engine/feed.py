"""Brings pending rows from a blocking iterator to the lanes, a chunk at a time, through a bounded queue.

It owns the reading thread and must not know where rows come from or what becomes of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rowmill.records import Row

PATIENCE_S = 1.0


class Feed:
    """Rows waiting for a worker.  At most about `rows_ahead` plus one chunk are in memory.

    `take` never blocks; `exhausted` turns true when every row has been taken and no more will come; `error` is what
    broke the reading off.  Whoever waits for rows subscribes to be woken.  `interrupt` has `chunks` end soon where it
    waits for something.
    """

    def __init__(
        self, chunks: Iterator[Sequence[Row]], rows_ahead: int, interrupt: Callable[[], None] = lambda: None
    ) -> None:
        self._chunks = chunks
        self._interrupt = interrupt
        self._rows: deque[Row] = deque()
        self._low_water = max(1, rows_ahead)
        self._room = threading.Semaphore(1)
        self._room_asked = False
        self._stopping = False
        self._ended = False
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._closed = asyncio.Event()
        self.error: Exception | None = None

    @property
    def exhausted(self) -> bool:
        return self._ended and not self._rows

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` is called on the loop when rows have come or the end is known."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Starts the thread; call on the running loop."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._read, args=(loop,), name="rowmill-feed", daemon=True)
        self._thread.start()

    def take(self) -> Row | None:
        """The next row, None if none is here now."""
        rows = self._rows
        if not rows:
            return None
        row = rows.popleft()
        if self._room_asked and len(rows) < self._low_water:
            self._room_asked = False
            self._room.release()
        return row

    async def stop(self) -> None:
        """Ends the reading and waits for the thread, which first finishes the chunk it is at.

        Not for long: what it reads may be somebody's generator that waits for anything.
        """
        self._stopping = True
        self._interrupt()
        self._room.release()
        if self._thread is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), PATIENCE_S)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        error: Exception | None = None
        try:
            while True:
                self._room.acquire()
                if self._stopping:
                    break
                rows = self._next_rows()
                if not rows:
                    break
                loop.call_soon_threadsafe(self._deliver, rows)
        except Exception as caught:  # whatever the reading raises is handed to the loop, which stops the run
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for this thread any more
            loop.call_soon_threadsafe(self._end, error)

    def _next_rows(self) -> Sequence[Row]:
        for rows in self._chunks:
            if rows or self._stopping:
                return () if self._stopping else rows
        return ()

    def _deliver(self, rows: Sequence[Row]) -> None:
        self._rows.extend(rows)
        if len(self._rows) < self._low_water:
            self._room.release()
        else:
            self._room_asked = True
        self._wake_listeners()

    def _end(self, error: Exception | None) -> None:
        self.error = error
        self._ended = True
        self._closed.set()
        self._wake_listeners()

    def _wake_listeners(self) -> None:
        for listener in self._listeners:
            listener()
