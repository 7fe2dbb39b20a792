"""One limit as a virtual schedule and as a cap on a window; it must not know what it limits.

The schedule is the generic cell rate algorithm (ITU-T I.371) in its virtual-scheduling form.
"""

from __future__ import annotations

import math

STILL_S = 1e-6


class Schedule:
    """One quantity's limit.  `cap` bounds a window, `rate` (per second) the long run; infinite where unknown.

    `stated_rate` comes from a stated or announced limit, `learned_rate` from refusals; the lower one holds.
    """

    __slots__ = ("burst_s", "cap", "due_s", "learned_rate", "rate", "stated_rate", "window_s")

    def __init__(self, window_s: float, burst_s: float) -> None:
        self.window_s = window_s
        self.burst_s = burst_s
        self.cap = math.inf
        self.rate = math.inf
        self.stated_rate = math.inf
        self.learned_rate = math.inf
        self.due_s = 0.0

    @property
    def limits(self) -> bool:
        """Whether there is any limit."""
        return self.rate < math.inf

    def set_rates(self, stated: float, learned: float, now: float) -> None:
        """Changes the rate; what is owed to the schedule is kept as an amount."""
        old, self.rate = self.rate, min(stated, learned)
        self.stated_rate, self.learned_rate = stated, learned
        if self.due_s > now and old < math.inf:
            self.due_s = now + (self.due_s - now) * old / self.rate

    def wait_s(self, amount: int, used: int, now: float) -> float:
        """Seconds until the schedule has room; infinite where only the window can tell (see `Window`)."""
        if used and used + amount > self.cap:
            return math.inf
        wait_s = self.due_s - self.burst_s - now
        return wait_s if wait_s > STILL_S else 0.0

    def take(self, amount: int, now: float) -> None:
        """Invariant: nobody waits longer than a window, also after a need larger than the limit."""
        due_s = self.due_s
        self.due_s = min((due_s if due_s > now else now) + amount / self.rate, now + self.window_s)

    def correct(self, change: int, now: float) -> None:
        """An amount taken before was larger by `change`, at `now`.  Invariant: as for `take`."""
        self.due_s = min(self.due_s + change / self.rate, now + self.window_s)
