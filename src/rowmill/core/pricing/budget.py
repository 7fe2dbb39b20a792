"""The budget: money is reserved at its worst case before a request is sent, and settled when its cost is known.

Must not know prices or lanes.  Invariant: what was spent and what is reserved never exceed the limit together,
as long as no request costs more than its worst case.
"""

from __future__ import annotations

from collections.abc import Callable

# Sums are kept in whole picodollars: adding and taking away millions of floats would drift.
_PER_USD = 10**12


class Budget:
    """Spent + worst case in flight + next <= limit.  All amounts are USD.

    `spent_usd` and `unconfirmed_usd` take up what earlier sessions spent; the unconfirmed is part of the spent.
    `record` is told of this session, before each send and after it, in picodollars: what is spent, what may be, and of
    how many requests the cost is not known.  Not for use from several threads.
    """

    __slots__ = ("_known", "_limit", "_maybe", "_reserved", "_sending", "_spent", "_unconfirmed", "_unknown", "record")

    def __init__(self, limit_usd: float, spent_usd: float = 0.0, unconfirmed_usd: float = 0.0) -> None:
        self._limit = _pico(limit_usd)
        self._spent = _pico(spent_usd)
        self._unconfirmed = _pico(unconfirmed_usd)
        self._reserved = 0
        self._sending = self._known = self._maybe = self._unknown = 0
        self.record: Callable[[int, int, int], None] | None = None

    @property
    def limit_usd(self) -> float:
        """The most that may be spent."""
        return self._limit / _PER_USD

    @property
    def spent_usd(self) -> float:
        """What counts as spent: known costs, and the worst case of requests whose cost stays unknown."""
        return self._spent / _PER_USD

    @property
    def unconfirmed_usd(self) -> float:
        """The part of `spent_usd` that is a worst case, because no usage came back."""
        return self._unconfirmed / _PER_USD

    @property
    def reserved_usd(self) -> float:
        """The worst case of what is admitted; at 0 a refused reservation stays refused."""
        return self._reserved / _PER_USD

    @property
    def sending_usd(self) -> float:
        """The part of it that is sent, and so may have to be paid for."""
        return self._sending / _PER_USD

    def try_reserve(self, worst_usd: float) -> bool:
        """Reserves for one request if it fits; a refused one may fit once others have settled."""
        worst = _pico(worst_usd)
        if self._spent + self._reserved + worst > self._limit:
            return False
        self._reserved += worst
        return True

    def sends(self, worst_usd: float) -> None:
        """What was reserved is sent now: from here on it may have to be paid for."""
        worst = _pico(worst_usd)
        self._sending += worst
        self._maybe += worst
        self._unknown += 1
        self._record()

    def settle(self, worst_usd: float, cost_usd: float | None) -> None:
        """Ends a send with what it cost; None lets it stand at its worst case."""
        worst = _pico(worst_usd)
        self._reserved -= worst
        self._sending -= worst
        if cost_usd is None:
            self._spent += worst
            self._unconfirmed += worst
        else:
            cost = _pico(cost_usd)
            self._spent += cost
            self._known += cost
            self._maybe -= worst
            self._unknown -= 1
        self._record()

    def give_back(self, worst_usd: float) -> None:
        """Ends a reservation of a request that was never sent."""
        self._reserved -= _pico(worst_usd)

    def _record(self) -> None:
        if self.record is not None:
            self.record(self._known, self._maybe, self._unknown)


def _pico(usd: float) -> int:
    return round(usd * _PER_USD)
