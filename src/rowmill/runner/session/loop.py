"""A loop in a thread of its own for synchronous callers, and signals turned into requests to stop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from rowmill.core.measures.gc_threshold import rare_collections
from rowmill.errors import SIGNAL_REASONS, StopReason, exit_code

T = TypeVar("T")


class SystemClock:
    """The running loop's clock, Unix time and the system's randomness; implements `ports.Clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time
        self.wall = time.time
        self.random = random.Random().random


def run_in_thread(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine in a new thread on a loop of its own, so that it also works where a loop is running.

    The caller's context goes along.
    Signals keep reaching the calling thread while it waits.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            with rare_collections(), asyncio.Runner(loop_factory=_new_loop) as runner:
                results.append(runner.run(main()))
        except BaseException as error:  # carried over to the calling thread
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(body), name="rowmill-engine", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(3600.0)
    if errors:
        raise errors[0]
    return results[0]


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Does blocking work in a thread.  When cancelled it still waits for the work's end, and raises then."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # looked at, so that nobody misses it
        raise cancelled
    return task.result()


async def until_stopped(execution: Coroutine[Any, Any, T], stop: Callable[[StopReason], None]) -> T:
    """Awaits a session on the running loop.  When cancelled it drops what is in flight, and raises at the end."""
    task = asyncio.ensure_future(execution)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            stop(StopReason.INTERRUPTED)
            stop(StopReason.INTERRUPTED)
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Terminated(SystemExit):
    """SIGTERM came while nothing was in flight; the process ends with 143."""


@contextlib.contextmanager
def signals(on_signal: Callable[[int], None], *, wanted: bool) -> Iterator[None]:
    """Has SIGINT, SIGTERM and SIGHUP call `on_signal` for as long as the context lasts; only in the main thread.

    After the second one the system's own way is back: a third ends the process, whatever keeps it.  A SIGHUP that is
    ignored, as under `nohup`, stays ignored.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return

    came: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
        on_signal(number)

    before = {number: signal.signal(number, handler) for number in SIGNAL_REASONS if not _is_ignored(number)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _is_ignored(number: int) -> bool:
    """Whether the process was started so that the terminal's end is none of its business."""
    return signal.Signals(number).name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN


def leave(number: int) -> None:
    """What a signal does while no engine runs."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(exit_code(SIGNAL_REASONS[number]))
