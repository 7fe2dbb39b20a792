"""Threads for blocking functions, at most so many; a thread that hangs does not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Work = Callable[[], None]
T = TypeVar("T")


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


class OneThread:
    """Work for a loop done in one thread beside it, in order; implements `ports.Aside`.

    What somebody's function does for ever keeps neither the loop nor the process.
    """

    def __init__(self) -> None:
        self._threads = Threads(1)

    async def __call__(self, work: Callable[[], T], /) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._threads.submit(partial(self._do, work, loop, done))
        return await done

    def close(self) -> None:
        """Lets the thread end."""
        self._threads.close()

    @staticmethod
    def _do(work: Callable[[], Any], loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any]) -> None:
        try:
            deliver = partial(_settle, done, work())
        except BaseException as error:  # raised where it is awaited
            deliver = partial(_settle, done, None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver)


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None = None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
