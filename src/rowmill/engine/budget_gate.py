"""Holds a run to its budget: a send reserves its worst cost first, or waits while sends in flight may free some.

It must not know prices, requests or lanes; the arithmetic is `core.pricing.budget`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rowmill.core.pricing.budget import Budget


class Waiter(NamedTuple):
    """A send that did not fit, and its worst case in USD."""

    worst_usd: float
    admitted: asyncio.Future[bool]


class BudgetGate:
    """Admits sends; without a budget, all of them.  For use on the engine's loop only.

    `empty` is called, perhaps often, when nothing is in flight and what waits does not fit.
    """

    def __init__(self, empty: Callable[[], None]) -> None:
        self.budget: Budget | None = None
        self._empty = empty
        self._waiters: deque[Waiter] = deque()
        self._closed = False

    async def admit(self, worst_usd: float) -> bool:
        """Reserves the worst case for one send, waiting for it if need be; False where it is not to be sent."""
        if self.budget is None:
            return True
        if self._closed:
            return False
        # Invariant: who waits is served first, or large requests would starve behind small ones.
        if not self._waiters and self.budget.try_reserve(worst_usd):
            return True
        waiter = Waiter(worst_usd, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._serve()
        try:
            return await waiter.admitted
        except asyncio.CancelledError:
            if not waiter.admitted.cancelled() and waiter.admitted.result():  # admitted and dropped in one turn
                self.give_back(worst_usd)
            raise

    def sends(self, worst_usd: float) -> None:
        """What was admitted is sent now."""
        if self.budget is not None:
            self.budget.sends(worst_usd)

    def settle(self, worst_usd: float, cost_usd: float | None) -> None:
        """A send has ended; None where its cost stays unknown."""
        if self.budget is not None:
            self.budget.settle(worst_usd, cost_usd)
            self._serve()

    def give_back(self, worst_usd: float) -> None:
        """What was admitted is not sent after all."""
        if self.budget is not None:
            self.budget.give_back(worst_usd)
            self._serve()

    def close(self) -> None:
        """Admits nothing any more; what waits is not sent."""
        self._closed = True
        while self._waiters:
            self._answer(self._waiters.popleft(), admitted=False)

    def _serve(self) -> None:
        assert self.budget is not None
        while self._waiters:
            if self._waiters[0].admitted.cancelled():
                self._waiters.popleft()
            elif self.budget.try_reserve(self._waiters[0].worst_usd):
                self._answer(self._waiters.popleft(), admitted=True)
            elif self.budget.reserved_usd == 0 and self._let_a_smaller_one_go():
                continue
            else:
                break
        if self._waiters and self.budget.reserved_usd == 0:
            self._empty()

    def _let_a_smaller_one_go(self) -> bool:
        """With nothing in flight the first will never fit; another one may."""
        assert self.budget is not None
        for waiter in self._waiters:
            if not waiter.admitted.cancelled() and self.budget.try_reserve(waiter.worst_usd):
                self._waiters.remove(waiter)
                self._answer(waiter, admitted=True)
                return True
        return False

    def _answer(self, waiter: Waiter, *, admitted: bool) -> None:
        if not waiter.admitted.done():
            waiter.admitted.set_result(admitted)
        elif admitted and self.budget is not None:
            self.budget.give_back(waiter.worst_usd)
