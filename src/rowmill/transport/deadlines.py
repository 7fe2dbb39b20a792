"""Watches the deadlines of all that is in flight with one timer; must not know what expires."""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_APART_S = 0.02


class Perishable(Protocol):
    """Something with a deadline (on `perf_counter`'s clock) that can be told that it has passed."""

    deadline_s: float

    def expire(self) -> None: ...


class Deadlines:
    """One timer, set for the earliest deadline seen; a sweep expires what is due and finds the next.

    With equal timeouts and prompt replies that is one sweep a timeout, not a timer a request.  Sweeps are at
    least 20 ms apart, so deadlines are met late by that much at most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self._now = now
        self._watched: set[Perishable] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = inf
        # The set's own method, as it is called once a request.
        self.forget = self._watched.discard

    def watch(self, one: Perishable) -> None:
        """Expires `one` at its deadline unless it is forgotten before."""
        self._watched.add(one)
        if one.deadline_s < self._next_s:
            self._arm(one.deadline_s, self._now())

    def stop(self) -> None:
        """Forgets all."""
        self._watched.clear()
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
        due = [one for one in self._watched if one.deadline_s <= now_s]
        self._watched.difference_update(due)
        if self._watched:
            self._arm(max(min(one.deadline_s for one in self._watched), now_s + _APART_S), now_s)
        for one in due:
            one.expire()
