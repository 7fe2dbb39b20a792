"""Says which row holds the loop, while it does: a thread that the loop has to answer now and then.

It must not know what the work is; it looks at the loop's stack.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from rowmill.core.replies.steps import RowState

BEAT_S = 0.5
HELD_S = 2.0
SAID_EVERY_S = 30.0


class Watchdog:
    """Watches the running loop from `start` to `stop`; `say` gets the words, in the watching thread."""

    def __init__(self, say: Callable[[str], None], held_s: float = HELD_S) -> None:
        self._say = say
        self._held_s = held_s
        self._over = threading.Event()
        self._answered_s = 0.0
        self._said_s = float("-inf")

    def start(self) -> None:
        """Call on the loop."""
        self._answered_s = time.monotonic()
        watched = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=watched, name="rowmill-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Ends the watching."""
        self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while not self._over.wait(BEAT_S):
                loop.call_soon_threadsafe(self._answer)
                self._look(thread)

    def _answer(self) -> None:
        self._answered_s = time.monotonic()

    def _look(self, thread: int) -> None:
        now = time.monotonic()
        held_s = now - self._answered_s
        if held_s < self._held_s or now - self._said_s < SAID_EVERY_S:
            return
        frame = sys._current_frames().get(thread)
        if frame is not None:
            self._said_s = now
            self._say(f"everything has waited for {held_s:.1f} s{_words(frame)}")


def _words(frame: FrameType) -> str:
    """Which row is being worked on in a stack, and in which function; empty where there is none."""
    where = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
    above: FrameType | None = frame
    while above is not None:
        state = above.f_locals.get("state")
        if isinstance(state, RowState):
            return f" for row {state.row.index}, in {where}"
        above = above.f_back
    return f", in {where}"
