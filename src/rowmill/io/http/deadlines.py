"""Watches the deadlines of all that is in flight with one timer; must not know what expires."""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

_APART_S = 0.02


class Perishable(Protocol):
    """Something with a deadline (on `perf_counter`'s clock) that can be told that it has passed."""

    deadline_s: float

    def expire(self) -> None: ...


class Deadlines:
    """One timer, set for the earliest deadline seen; a sweep expires what is due and finds the next.

    With equal timeouts and prompt replies that is one sweep a timeout, not a timer a request.  Sweeps are at
    least 20 ms apart, so deadlines are met late by that much at most.  `in_flight` gives what a sweep looks through.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        in_flight: Callable[[], Iterable[Perishable]],
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = loop
        self._in_flight = in_flight
        self._now = now
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = inf

    def watch(self, deadline_s: float) -> None:
        """Has a sweep at this deadline, at the latest."""
        if deadline_s < self._next_s:
            self._arm(deadline_s, self._now())

    def stop(self) -> None:
        """No sweep comes any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_s = None, inf

    def _arm(self, next_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_s = next_s
        self._timer = self._loop.call_later(max(next_s - now_s, 0.0), self._sweep)

    def _sweep(self) -> None:
        now_s = self._now()
        self._timer, self._next_s = None, inf
        in_flight = list(self._in_flight())
        next_s = min((one.deadline_s for one in in_flight if one.deadline_s > now_s), default=inf)
        if next_s < inf:
            self._arm(max(next_s, now_s + _APART_S), now_s)
        for one in in_flight:
            if one.deadline_s <= now_s:
                one.expire()
