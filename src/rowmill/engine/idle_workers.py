"""The workers of one lane that find nothing to do: asleep until somebody wakes them or their time has come.

It must not know what they wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TIMER_TICK_S = 0.001  # the loop's clock may stand a little before what a timer was set to


class IdleWorkers:
    """Those asleep, `waiters`, the longest first; one timer for all of them, which calls `ring`."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.waiters: deque[asyncio.Future[None]] = deque()
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def wake(self) -> None:
        """Wakes one."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Wakes all."""
        while self.waiters:
            self.wake()

    async def rest(self, now: float, due_s: float | None) -> None:
        """Sleeps until woken; `due_s` is when the timer is to ring, None where time alone changes nothing.

        Invariant: `now` is when there was nothing to do, so that nothing falls due unseen in between.
        """
        loop = asyncio.get_running_loop()
        if due_s is not None and due_s > now and (self._timer is None or due_s < self._rings_at):
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = due_s
            self._timer = loop.call_later(max(due_s - now, TIMER_TICK_S), self._rung)
        waiter = loop.create_future()
        self.waiters.append(waiter)
        await waiter

    def _rung(self) -> None:
        self._timer = None
        self._ring()
