"""Discrete-event models of servers and of a lane that obeys a limit: no loop, no clock, all time is virtual."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rowmill.core.limits.concurrency import AdaptiveLimit
from rowmill.core.limits.rate import Limits, Need, RateLimiter, Reservation

Service = Callable[[int, random.Random, float], float]  # slots in use, chance, time -> seconds


def lognormal(sigma: float) -> Service:
    """Median 1 s, whatever else is served."""
    return lambda active, chance, now: math.exp(chance.gauss(0.0, sigma))


def shared_processor(active: int, chance: random.Random, now: float) -> float:
    """Slots that share a processor: 6.7 replies a second alone, 16 with eight."""
    return (0.1 + 0.05 * active) * math.exp(chance.gauss(0.0, 0.15))


class Reply(NamedTuple):
    at_s: float
    latency_s: float


class Goal(NamedTuple):
    at_s: float
    limit: int


class Outcome(NamedTuple):
    """What a closed loop has seen; `goals` are the moves of the limit."""

    replies: list[Reply]
    goals: list[Goal]
    refused: int

    def rate(self, from_s: float, to_s: float) -> float:
        return sum(from_s <= reply.at_s < to_s for reply in self.replies) / (to_s - from_s)

    def p95_s(self, from_s: float, to_s: float) -> float:
        latencies = sorted(reply.latency_s for reply in self.replies if from_s <= reply.at_s < to_s)
        return latencies[int(0.95 * len(latencies))]

    def mean_limit(self, from_s: float, to_s: float) -> float:
        """Over time."""
        area, limit, at_s = 0.0, self.goals[0].limit, from_s
        for goal in [*self.goals, Goal(to_s, 0)]:
            end_s = min(max(goal.at_s, from_s), to_s)
            area += limit * (end_s - at_s)
            limit, at_s = goal.limit, end_s
        return area / (to_s - from_s)

    def first(self, from_s: float, wanted: Callable[[int], bool]) -> float:
        """Seconds from `from_s` until the limit is as wanted."""
        return next((goal.at_s - from_s for goal in self.goals if goal.at_s > from_s and wanted(goal.limit)), math.inf)


def closed_loop(
    gate: AdaptiveLimit | int,
    until_s: float,
    slots: Callable[[float], int],
    service: Service,
    seed: int,
    refuses_above: int | None = None,
) -> Outcome:
    """As many requests as the gate allows, always, at a server that serves `slots(t)` at a time, in order."""
    chance, number = random.Random(seed), itertools.count()
    now, active, in_flight, refused = 0.0, 0, 0, 0
    events: list[tuple[float, int, float, bool]] = []
    queue: deque[float] = deque()
    replies: list[Reply] = []
    goals = [Goal(0.0, gate if isinstance(gate, int) else gate.goal)]
    while now < until_s:
        while in_flight < (gate if isinstance(gate, int) else gate.limit):
            in_flight += 1
            if refuses_above is not None and active + len(queue) >= refuses_above:
                heapq.heappush(events, (now + 0.05, next(number), now, False))
            else:
                queue.append(now)
            while queue and active < slots(now):
                active += 1
                heapq.heappush(events, (now + service(active, chance, now), next(number), queue.popleft(), True))
        now, _, sent_s, accepted = heapq.heappop(events)
        if accepted:
            active -= 1
            replies.append(Reply(now, now - sent_s))
        else:
            refused += 1
        if isinstance(gate, AdaptiveLimit) and (
            gate.on_success(now - sent_s, sent_s, in_flight, now) if accepted else gate.on_throttle(sent_s, now)
        ):
            goals.append(Goal(now, gate.goal))
        in_flight -= 1
        while queue and active < slots(now):
            active += 1
            heapq.heappush(events, (now + service(active, chance, now), next(number), queue.popleft(), True))
    return Outcome(replies, goals, refused)


class Quota(Protocol):
    def admit(self, now: float, amount: int) -> float:
        """0 when admitted, else the seconds to wait."""


class SlidingQuota:
    """At most `cap` in any `window_s`."""

    def __init__(self, cap: int, window_s: float) -> None:
        self.cap, self.window_s = cap, window_s
        self._used = 0
        self._entries: deque[tuple[float, int]] = deque()

    def admit(self, now: float, amount: int) -> float:
        while self._entries and self._entries[0][0] <= now - self.window_s:
            self._used -= self._entries.popleft()[1]
        over = self._used + amount - self.cap
        if over <= 0:
            self._entries.append((now, amount))
            self._used += amount
            return 0.0
        for at_s, taken in self._entries:
            over -= taken
            if over <= 0:
                return at_s + self.window_s - now
        return self.window_s


class BucketQuota:
    """A bucket of `cap` that fills once in `window_s`."""

    def __init__(self, cap: int, window_s: float) -> None:
        self.cap, self.rate = cap, cap / window_s
        self._level, self._at_s = float(cap), 0.0

    def admit(self, now: float, amount: int) -> float:
        self._level = min(self.cap, self._level + (now - self._at_s) * self.rate)
        self._at_s = now
        if self._level < amount:
            return (amount - self._level) / self.rate
        self._level -= amount
        return 0.0


class Seen(NamedTuple):
    """One request as the server saw it."""

    at_s: float
    amount: int
    accepted: bool


class PausingLane:
    """A lane of `in_flight` that waits as refusals ask, then probes with one request, as the engine does."""

    def __init__(
        self, limiter: RateLimiter, quota: Quota, in_flight: int, seed: int, announces: Limits | None = None
    ) -> None:
        self.limiter, self.quota, self.most, self.announces = limiter, quota, in_flight, announces
        self.log: list[Seen] = []
        self._chance, self._number = random.Random(seed), itertools.count()
        self._events: list[tuple[float, int, str, tuple[Reservation, Need, float, float] | None]] = []
        self._in_flight, self._until_s, self._cut_s = 0, 0.0, -1.0
        self._probing = self._probe_is_out = False
        self._sends = 0
        self._wake_s = math.inf

    def run(self, needs: Sequence[Need], by_tokens: bool = False) -> list[Seen]:
        """Sends them all; a refused one again."""
        todo = deque(needs)
        self._send(todo, 0.0)
        while self._events:
            now, _, kind, request = heapq.heappop(self._events)
            if request is None:
                self._wake_s = math.inf if now >= self._wake_s else self._wake_s
            elif kind == "arrive":
                held, need, sent_s, _ = request
                amount = need.input_tokens + need.output_tokens if by_tokens else need.requests
                wait_s = self.quota.admit(now, amount)
                self.log.append(Seen(now, amount, wait_s == 0.0))
                self._push(now + self._chance.uniform(0.05, 0.3), "reply", (held, need, sent_s, wait_s))
            else:
                self._replied(todo, request, now)
            self._send(todo, now)
        return self.log

    def _push(self, at_s: float, kind: str, request: tuple[Reservation, Need, float, float] | None) -> None:
        heapq.heappush(self._events, (at_s, next(self._number), kind, request))

    def _replied(self, todo: deque[Need], request: tuple[Reservation, Need, float, float], now: float) -> None:
        held, need, sent_s, wait_s = request
        self._in_flight -= 1
        if self.announces is not None:
            self.limiter.set_limits(self.announces, now)
            self.announces = None
        if wait_s == 0.0:
            self.limiter.settle(held, need.input_tokens, need.output_tokens, now)
            if sent_s > self._cut_s:
                self._probing = self._probe_is_out = False
            return
        self.limiter.throttled(held, now)
        todo.appendleft(need)
        if sent_s > self._cut_s:
            self._cut_s, self._until_s = now, now + math.ceil(wait_s)
            self._probing, self._probe_is_out = True, False

    def _reserve(self, need: Need, now: float) -> Reservation | float:
        """As the engine does: what nothing limits is only counted, but for the first and now and then."""
        self._sends += 1
        if self.limiter.is_unlimited and self._sends % 4 != 1:
            return self.limiter.count(now)
        return self.limiter.try_reserve(need, now)

    def _send(self, todo: deque[Need], now: float) -> None:
        while todo and self._in_flight < self.most and not (self._probing and self._probe_is_out):
            held = self._until_s - now if now < self._until_s else self._reserve(todo[0], now)
            if not isinstance(held, Reservation):
                if now + held < self._wake_s:
                    self._wake_s = now + held
                    self._push(self._wake_s, "wake", None)
                return
            self._in_flight += 1
            self._probe_is_out = self._probing
            self._push(now + self._chance.uniform(0.001, 0.02), "arrive", (held, todo.popleft(), now, 0.0))
