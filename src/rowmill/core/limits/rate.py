"""How many requests and tokens one quota admits: reserved before a send, settled when usage is known.

It must not know of lanes, clocks or headers: every time is passed in, every amount is a whole number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import msgspec

from rowmill.core.limits.gcra import Schedule
from rowmill.core.limits.learned import LearnedRate
from rowmill.core.limits.window import BUCKETS, Window

HEADROOM = 0.95
WINDOW_S = 60.0
LARGE_SHARE = 0.05
SHORTEST_WAIT_S = 0.001  # times at the edge of a bucket are equal but for rounding
QUANTITIES = ("requests", "tokens", "input tokens", "output tokens")
LEARNED = 2  # of these quantities a rate can be learned
UNWEIGHED = (1, 0, 0, 0)  # what a request stands at while nothing limits: tokens are not counted then


class Need(NamedTuple):
    """What one request takes of a quota; tokens are estimates.

    Ask again with the same object: a large need that waits keeps its turn by it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Stated or announced limits a minute; None where unknown.  `tokens_per_min` counts input and output."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    input_tokens_per_min: float | None = None
    output_tokens_per_min: float | None = None

    def or_else(self, other: Limits) -> Limits:
        """These, and the other's where these are unknown."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Limits(*(theirs if mine is None else mine for mine, theirs in pairs))


class Reservation(msgspec.Struct, eq=False, gc=False):
    """What is held for one request until it is settled or given back; opaque."""

    amounts: Sequence[int]
    at_s: float
    bucket: int


class RateLimiter:
    """One quota, shared by all who spend it; for one thread.

    While `is_unlimited` (no limit is known and nothing was refused yet) only requests are counted.  Afterwards those
    stand at the tokens that the settled ones among them took on average.

    Invariant: what is reserved in any window of `window_s` is at most a stated limit, but for a single need that
    is larger than the limit and then stands alone.  The long run keeps to `headroom` of it, with bursts of at
    most a sixtieth of the window, which is one second of a minute.
    """

    def __init__(self, limits: Limits | None = None, headroom: float = HEADROOM, window_s: float = WINDOW_S) -> None:
        self.limits = Limits()
        self._headroom = headroom
        self._window_s = window_s
        self._window = Window(len(QUANTITIES), window_s)
        self._schedules = [Schedule(window_s, window_s / BUCKETS) for _ in QUANTITIES]
        self._learned = [LearnedRate(window_s) for _ in range(LEARNED)]
        self._limiting: list[tuple[int, Schedule]] = []
        self.is_unlimited = True
        self._unweighed: Sequence[int] = UNWEIGHED
        self._last_need = Need()
        self._settled = self._settled_in = self._settled_out = 0
        self._was_throttled = False
        self._head: Need | None = None
        self._head_until_s = -math.inf
        self.set_limits(limits or Limits(), 0.0)

    def set_limits(self, limits: Limits, now: float) -> None:
        """Replaces the stated limits; what was reserved in the last window counts under the new ones too."""
        self.limits = limits
        for schedule, per_min in zip(self._schedules, astuple(limits), strict=True):
            schedule.cap = per_min * self._window_s / 60.0 if per_min else math.inf
            stated = per_min / 60.0 * self._headroom if per_min else math.inf
            schedule.set_rates(stated, schedule.learned_rate, now)
        self._choose_limiting()

    def try_reserve(self, need: Need, now: float) -> Reservation | float:
        """Admits and reserves, or gives the seconds (> 0) after which it is worth asking again."""
        if self.is_unlimited:
            return self.count(now, need)
        if self._head is not None and need is not self._head and now < self._head_until_s:
            return self._head_until_s - now
        window = self._window
        window.advance(now)
        tokens_in, tokens_out, requests = need
        amounts = (requests, tokens_in + tokens_out, tokens_in, tokens_out)
        used = window.used
        for index, schedule in self._limiting:
            if schedule.wait_s(amounts[index], used[index], now):
                return self._wait_s(need, amounts, now)
        self._head = None
        for index, schedule in self._limiting:
            schedule.take(amounts[index], now)
        return Reservation(amounts, now, window.add(amounts))

    def count(self, now: float, need: Need | None = None) -> Reservation:
        """Admits one request where nothing limits; not every one needs to be estimated."""
        if need is not None:
            self._last_need = need
        return Reservation(UNWEIGHED, now, self._window.count(now))

    def settle(self, held: Reservation, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        """The server took the request; what it used replaces what was reserved, None keeps it."""
        if self.is_unlimited:
            self._settled += 1
            self._settled_in += self._last_need.input_tokens if input_tokens is None else input_tokens
            self._settled_out += self._last_need.output_tokens if output_tokens is None else output_tokens
            return
        requests, _, tokens_in, tokens_out = self._weighed(held)
        if input_tokens is not None:
            tokens_in = input_tokens
        if output_tokens is not None:
            tokens_out = output_tokens
        amounts = (requests, tokens_in + tokens_out, tokens_in, tokens_out)
        if amounts != held.amounts:
            self._correct(held, amounts, now)
        if self._was_throttled:
            self._window.advance(now)
            for index, learned in enumerate(self._learned):
                if learned.on_success(held.at_s, self._window.used[index], now):
                    self._use_learned(index, now)

    def give_back(self, held: Reservation, now: float) -> None:
        """Nothing was sent, or the server did not count it."""
        self._weighed(held)
        self._correct(held, (0,) * len(QUANTITIES), now)

    def throttled(self, held: Reservation, now: float) -> None:
        """The server refused the request for its rate: given back, and a rate is learned below any stated one."""
        self._weigh()
        refused = self._weighed(held)
        self.give_back(held, now)
        self._was_throttled = True
        for index, learned in enumerate(self._learned):
            if learned.on_throttle(held.at_s, refused[index], now):
                short_s, long_s = learned.measured_from_s
                accepted, start_s = self._window.since(index, long_s)
                if now - start_s < self._window_s / 2:
                    accepted, start_s = self._window.since(index, short_s)
                learned.measure(accepted, start_s, now)

    def _wait_s(self, need: Need, amounts: Sequence[int], now: float) -> float:
        """The longest wait.  Invariant: small needs do not overtake a large one for ever, it gets the next turn."""
        longest_s = 0.0
        for index, schedule in self._limiting:
            amount = amounts[index]
            wait_s = schedule.due_s - schedule.burst_s - now
            if self._window.used[index] + amount > schedule.cap:
                wait_s = max(wait_s, self._window.falls_to_s(index, max(schedule.cap - amount, 0), now))
            longest_s = max(longest_s, wait_s)
            if index and amount > LARGE_SHARE * schedule.cap:
                self._head = need
        if self._head is need:
            self._head_until_s = now + longest_s + self._window_s / BUCKETS
        return max(longest_s, SHORTEST_WAIT_S)

    def _correct(self, held: Reservation, amounts: Sequence[int], now: float) -> None:
        window, before = self._window, held.amounts
        window.advance(now)
        window.replace(held.bucket, before, amounts)
        for index, schedule in self._limiting:
            if before[index] != amounts[index]:
                schedule.correct(amounts[index] - before[index], now)
        held.amounts = amounts

    def _weigh(self) -> None:
        """Tokens are counted from here on."""
        if self.is_unlimited:
            self.is_unlimited = False
            tokens_in, tokens_out, _ = self._last_need
            if self._settled:
                tokens_in, tokens_out = self._settled_in // self._settled, self._settled_out // self._settled
            self._unweighed = (1, tokens_in + tokens_out, tokens_in, tokens_out)
            self._window.weigh(self._unweighed)

    def _weighed(self, held: Reservation) -> Sequence[int]:
        """What is held, in the amounts that its window holds."""
        if held.amounts is UNWEIGHED:
            held.amounts = self._unweighed
        return held.amounts

    def _use_learned(self, index: int, now: float) -> None:
        schedule = self._schedules[index]
        schedule.set_rates(schedule.stated_rate, self._learned[index].rate, now)
        self._choose_limiting()

    def _choose_limiting(self) -> None:
        self._limiting = [(index, schedule) for index, schedule in enumerate(self._schedules) if schedule.limits]
        if self._limiting:
            self._weigh()
