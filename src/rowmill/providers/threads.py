"""Threads for blocking functions, at most so many; a thread that hangs does not keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Threads:
    """Daemon threads, started when they are needed.  `work` must not raise."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    def submit(self, work: Work) -> None:
        """Has one of the threads do it; for one calling thread."""
        self._queue.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name="rowmill-call", daemon=True).start()

    def close(self) -> None:
        """Ends the threads once they are through with what they are at."""
        for _ in range(self._started):
            self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # or the last result would live as long as the thread is idle
            self._idle.release()
