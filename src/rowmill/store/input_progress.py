"""How far the input has come into the run file and how far it has been handed out: what two threads tell each other.

The spool's thread says which chunks may be fed, the feed's threads how many they have taken.  It must not touch the
run file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

CHUNKS_AHEAD = 24
REST_PER_WORK = 3.0


class InputProgress:
    """Safe from any thread.  `rows` is how many rows the input has, None until it has been read to its end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last_ready = -1
        self._chunks_ready = 0
        self._chunks_fed = 0
        self._is_feed_waiting = True
        self._is_complete = False
        self._is_stopping = False
        self._error: Exception | None = None
        self.rows: int | None = None

    @property
    def error(self) -> Exception | None:
        """What broke the reading off."""
        return self._error

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def is_feed_waiting(self) -> bool:
        """Whether somebody waits for a chunk."""
        with self._changed:
            return self._is_feed_waiting

    def stop(self) -> None:
        """Ends the reading at the next chunk and wakes the thread that waits for one."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """The reading broke off; raised in the thread that waits for a chunk that will not come."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def chunk_ready(self, last: int) -> None:
        """A chunk is committed, and all rows up to the index `last` may be fed."""
        with self._changed:
            self._last_ready = max(self._last_ready, last)
            self._chunks_ready += 1
            self._changed.notify_all()

    def complete(self, rows: int, last: int) -> None:
        """The input has been read to its end, which is the row of the index `last`."""
        with self._changed:
            self._last_ready = max(last, self._last_ready)
            self._is_complete = True
            self.rows = rows
            self._changed.notify_all()

    def chunks_fed(self, chunks: int) -> None:
        """That many chunks have been handed out by one of those who walk over them."""
        with self._changed:
            self._chunks_fed = max(self._chunks_fed, chunks)
            self._changed.notify_all()

    def wait_for_rows(self, after: int, hurry: Callable[[], None]) -> bool:
        """Blocks until a row with an index above `after` may be fed; False where none will come.

        `hurry` is called where it has to wait.  Raises what broke the reading off.
        """
        with self._changed:
            self._is_feed_waiting = self._last_ready <= after
            self._changed.notify_all()
            if self._is_feed_waiting:
                hurry()
            while self._last_ready <= after and not self._is_complete and not self._is_stopping and self._error is None:
                self._changed.wait()
            self._is_feed_waiting = False
            if self._is_stopping:
                return False
            if self._last_ready <= after and self._error is not None:
                raise self._error
            return self._last_ready > after

    def rest(self, worked_s: float) -> None:
        """Leaves the processor to the workers once enough chunks lie ahead of them."""
        with self._changed:
            ahead = self._chunks_ready - self._chunks_fed
            if ahead > CHUNKS_AHEAD and not self._is_feed_waiting and not self._is_stopping:
                most_s = min(worked_s * REST_PER_WORK, 0.5)
                self._changed.wait_for(lambda: self._is_stopping or self._is_feed_waiting, most_s)
