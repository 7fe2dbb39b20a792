"""How many requests one server should have in flight: the arithmetic, apart from the gate that obeys it.

It learns from replies alone and must not know of coroutines, queues or clocks: every time is passed in.

Two levels are compared by their throughput, which is in flight / latency (Little, "A Proof for the Queuing
Formula", 1961): a server that has room answers more with more in flight, a full one only answers later.  From
TCP BBR (Cardwell et al., ACM Queue 14/5, 2016) come the doubling start that ends when throughput stops rising,
the knee as throughput x unqueued latency, and the probes up and down.  The band of a small standing queue is that of
TCP Vegas (Brakmo and Peterson, 1995).  Netflix's concurrency-limits gave the rule to grow only what is used and
the cut by refusals, here at most once an episode.
"""

from __future__ import annotations

import math
from typing import NamedTuple

START = 8
FEWEST_REPLIES = 32  # that a level of the start is judged by
SHORTEST_S = 1e-6
BATCH = 16  # replies between two looks
BATCH_PRECISION = 0.09  # standard error of the last replies' mean from which it may raise the alarm
CUT, HALVED = 0.75, 0.5  # after a refusal, and after a reply that the queue kept for too long
EMPTIER, SLOWER = 1.0, 1.15  # latency against that of the same level before; more is another server state
USED_SHARE = 0.8  # peak in flight of the limit below which nothing grows
STANDING_QUEUE = 1.1  # of the knee, so that no slot is ever idle
GROWS_AGAIN_BELOW, STEPS_BACK_ABOVE = 1.05, 1.3  # latency against the unqueued one
START_ENDS_BELOW, SATURATED_BELOW = 0.35, 0.15  # growth of throughput by growth of the limit, both as logarithms
CLEARLY_GROWS = 0.6
ERROR_SHARE = 0.05  # server errors in an epoch above which nothing grows
LEAST_SPREAD = 0.02
USUAL_STEP = math.log(1.25)
PRECISION = 0.035  # standard error that an epoch's mean latency should have
CEILING_SHARE, CEILING_EPOCHS = 0.9, 12  # stay below the limit that was refused for so many epochs
FIRST_PROBE_EPOCHS, LONGEST_PROBE_EPOCHS = 6, 24


class Level(NamedTuple):
    """What one epoch has measured.  `error` is the relative standard error of the latency."""

    limit: int
    in_flight: float
    latency_s: float
    error: float

    @property
    def throughput(self) -> float:
        """Replies a second."""
        return self.in_flight / self.latency_s


class _Epoch:
    """Sums of the replies at one limit, once the change to it has passed through the server.

    All replies count from then on: leaving out those sent before would leave out the slow ones.
    """

    __slots__ = (
        "batch",
        "batch_s",
        "errors",
        "from_s",
        "in_flight",
        "peak",
        "replies",
        "settled",
        "squares",
        "sum_s",
        "unsettled",
    )

    def __init__(self, now: float, unsettled: int) -> None:
        self.from_s = now
        self.unsettled = unsettled
        self.settled = False
        self.replies = 0
        self.errors = 0
        self.peak = 0
        self.in_flight = 0
        self.sum_s = 0.0
        self.squares = 0.0
        self.batch = 0
        self.batch_s = 0.0

    def spread(self) -> float:
        """Standard deviation by mean."""
        mean_s = self.sum_s / self.replies
        variance = self.squares / self.replies - mean_s * mean_s
        return math.sqrt(max(variance, 0.0)) / mean_s

    def level(self, limit: int, least_spread: float) -> Level:
        error = max(self.spread(), least_spread) / math.sqrt(self.replies)
        return Level(limit, self.in_flight / self.replies, self.sum_s / self.replies, error)


class AdaptiveLimit:
    """The limit of one lane, between `minimum` (>= 1) and `maximum`; O(1) a reply.

    `limit` is what the gate obeys: it rises to `goal` by one a reply, so that requests do not leave in waves, and
    falls at once.  `why` says what moved the goal last.  Times are seconds on one clock.
    """

    def __init__(self, start: int = START, minimum: int = 1, maximum: int = 1024) -> None:
        self.minimum = minimum
        self.maximum = max(minimum, maximum)
        self.goal = min(max(start, minimum), self.maximum)
        self.limit = self.goal
        self.why = "start"
        self._starting = True
        self._epoch = _Epoch(-math.inf, 0)
        self._epochs = 0
        self._anchor: Level | None = None
        self._base_s: float | None = None
        self._step_back_from = 0
        self._full_s = math.inf
        self._spread = LEAST_SPREAD
        self._next_probe = 2
        self._probe_epochs = FIRST_PROBE_EPOCHS
        self._probe_down = False
        self._cut_s = -math.inf
        self._newest_ok_s = -math.inf
        self._ceiling = math.inf
        self._ceiling_until = 0

    def on_success(self, latency_s: float, sent_at: float, in_flight: int, now: float) -> bool:
        """A reply came; `in_flight` includes it.  True when the goal has moved."""
        epoch = self._epoch
        if sent_at > self._newest_ok_s:
            self._newest_ok_s = sent_at
        if self.limit < self.goal:
            self.limit += 1
            epoch.from_s = now
        if epoch.unsettled > 0:
            epoch.unsettled -= 1
            return False
        if not epoch.settled:
            epoch.settled = sent_at >= epoch.from_s
            return False
        latency_s = max(latency_s, SHORTEST_S)
        epoch.replies += 1
        epoch.sum_s += latency_s
        if sent_at >= epoch.from_s:
            epoch.batch += 1
            epoch.batch_s += latency_s
        epoch.squares += latency_s * latency_s
        epoch.in_flight += in_flight
        if in_flight > epoch.peak:
            epoch.peak = in_flight
        if epoch.replies % BATCH:
            return False
        before = self.goal
        self._look(epoch, now)
        return self.goal != before

    def on_throttle(self, sent_at: float, now: float) -> bool:
        """A refusal came: cut, unless it answers a request sent before the last cut.  True when it did."""
        return sent_at > self._cut_s and self._cut(CUT, "throttled", now)

    def on_timeout(self, sent_at: float, now: float) -> bool:
        """A request was given up.  One overtaken by a later one hangs by itself; else all wait in a queue: cut.

        A server that goes on with what was given up spends itself on replies that nobody reads, so the cut is deep.
        """
        overtaken = self._newest_ok_s > sent_at
        return not overtaken and sent_at > self._cut_s and self._cut(HALVED, "timeouts", now)

    def on_server_error(self) -> None:
        """A server error came; many of them stop growth."""
        self._epoch.errors += 1

    def _cut(self, share: float, why: str, now: float) -> bool:
        """Once an episode: what was sent before a cut says nothing about the limit after it."""
        before = self.goal
        self._cut_s = now
        self._ceiling = before
        self._ceiling_until = self._epochs + CEILING_EPOCHS
        self._starting = False
        self._anchor = None
        self._step_back_from = 0
        self._move(math.floor(before * share), why, now)
        return self.goal != before

    def _enough(self, epoch: _Epoch) -> float:
        """Replies that make an epoch: more for a probe, whose verdict lasts, fewer the further apart the levels."""
        for_precision = min((epoch.spread() / PRECISION) ** 2, max(8.0 * self.goal, 200.0))
        if self._anchor is not None and not self._starting:
            apart = math.log(max(self.goal, self._anchor.limit) / min(self.goal, self._anchor.limit))
            for_precision *= min(2.0, 2.0 * (USUAL_STEP / max(apart, USUAL_STEP)) ** 2)
        return max(24.0, 1.5 * self.goal, for_precision)

    def _look(self, epoch: _Epoch, now: float) -> None:
        """Decides early what is clear early, all else at the epoch's end."""
        level = epoch.level(self.goal, self._spread)
        whole = epoch.replies >= self._enough(epoch)
        if epoch.peak < USED_SHARE * self.goal:
            if whole:
                self._restart(now)
            return
        calm = epoch.errors <= ERROR_SHARE * epoch.replies
        if self._starting:
            if epoch.replies >= max(self.goal, FEWEST_REPLIES):
                self._start_up(level, whole, calm, now)
        elif self._is_overrun(epoch, level) and not self._step_back_from:
            self._step_back_from = self.goal
            self._full_s = math.inf
            self._anchor = None
            self._move(min(self._knee(level), self.goal - 1), "saturated", now)
        elif whole or self._clearly_grows(level, epoch.replies):
            self._end_epoch(level, calm, now)

    def _start_up(self, level: Level, whole: bool, calm: bool, now: float) -> None:
        """Doubles as long as throughput rises."""
        below = self._anchor
        if below is not None and level.latency_s > below.latency_s * 1.3:
            if not whole:
                return
            elasticity = _elasticity(below, level)
            if elasticity < START_ENDS_BELOW and elasticity + 2.0 * _doubt(below, level) < CLEARLY_GROWS:
                self._starting = False
                self._base_s = below.latency_s
                self._anchor = None
                self._move(self._knee(level), "saturated", now)
                return
        if not calm:
            if whole:
                self._restart(now)
        elif self.goal < self.maximum:
            self._anchor = level
            self._spread = max(self._spread, level.error * math.sqrt(self._epoch.replies))
            self._move(self.goal * 2, "growing", now)
        else:
            self._starting = False
            self._anchor = None
            self._base_s = level.latency_s
            self._restart(now)

    def _is_overrun(self, epoch: _Epoch, level: Level) -> bool:
        """Whether the last replies alone say that a queue has formed, beyond what a probe makes."""
        if self._base_s is None or self.goal <= self.minimum:
            return False
        expected_s = self._base_s
        if self._anchor is not None:
            expected_s = self._anchor.latency_s * max(1.0, self.goal / self._anchor.limit)
        spread = epoch.spread()
        if epoch.batch < max(self.goal / 2, min((spread / BATCH_PRECISION) ** 2, max(4.0 * self.goal, 64.0))):
            return False
        mean_s, error = epoch.batch_s / epoch.batch, spread / math.sqrt(epoch.batch)
        epoch.batch, epoch.batch_s = 0, 0.0
        return mean_s > expected_s * (STEPS_BACK_ABOVE + 3.0 * error)

    def _clearly_grows(self, level: Level, replies: int) -> bool:
        below = self._anchor
        if below is None or self._step_back_from or level.limit <= below.limit or replies < max(32, 1.5 * level.limit):
            return False
        return _elasticity(below, level) > CLEARLY_GROWS and _gain(below, level) > 3.0

    def _end_epoch(self, level: Level, calm: bool, now: float) -> None:
        self._epochs += 1
        self._spread = max(LEAST_SPREAD, 0.5 * (self._spread + self._epoch.spread()))
        if self._base_s is None:
            self._base_s = level.latency_s
        anchor, self._anchor = self._anchor, None
        if self._step_back_from:
            self._judge_step_back(anchor, level, now)
        elif anchor is None:
            self._hold_or_probe(level, calm, now)
        elif level.limit > anchor.limit:
            self._judge_growth(anchor, level, calm, now)
        else:
            self._judge_shrinking(anchor, level, now)

    def _hold_or_probe(self, level: Level, calm: bool, now: float) -> None:
        assert self._base_s is not None
        if level.latency_s > self._base_s * (STEPS_BACK_ABOVE + level.error) and self.goal > self.minimum:
            self._step_back_from = self.goal
            self._step_back(level, now)
            return
        roomy = level.latency_s < min(self._base_s * (GROWS_AGAIN_BELOW + level.error), self._full_s * EMPTIER)
        due = self._epochs >= self._next_probe
        if due and self._probe_down and self.goal > self.minimum:
            self._probe_down = False
            self._shrink(level, now)
        elif calm and (due or roomy) and self._may_grow():
            self._grow(level, now)
        else:
            self._restart(now)

    def _step_back(self, level: Level, now: float) -> None:
        """Goes to the knee, to see there whether it was a queue or whether answers only take longer."""
        self._anchor = level
        self._move(min(self._knee(level), self.goal - 1), "saturated", now)

    def _judge_step_back(self, above: Level | None, level: Level, now: float) -> None:
        """A first step back may rest on a passing state; only two whole epochs tell a queue from longer answers."""
        assert self._base_s is not None
        crowded = level.latency_s > self._base_s * (STEPS_BACK_ABOVE + level.error)
        if above is not None and level.limit < above.limit and 0.5 < _elasticity(level, above) < 1.25:
            self._base_s = level.latency_s
            limit, self._step_back_from = self._step_back_from, 0
            self._move(limit, "answers take longer", now)
        elif crowded and self.goal > self.minimum:
            self._step_back(level, now)
        else:
            self._step_back_from = 0
            self._restart(now)

    def _judge_growth(self, below: Level, level: Level, calm: bool, now: float) -> None:
        if level.latency_s > below.latency_s * level.limit / below.limit * SLOWER:
            self._hold_or_probe(level, False, now)
            return
        if _gain(below, level) > 2.0 and _elasticity(below, level) >= SATURATED_BELOW:
            self._full_s = math.inf
            self._base_s = level.latency_s
            self._probe_epochs = FIRST_PROBE_EPOCHS
            if calm and self._may_grow():
                self._grow(level, now)
                return
            self._restart(now)
            return
        assert self._base_s is not None
        self._full_s = below.latency_s
        if below.latency_s < self._base_s:
            self._base_s += 0.3 * (below.latency_s - self._base_s)
        self._probe_later()
        self._move(min(max(below.limit, self._knee(level)), level.limit), "saturated", now)

    def _judge_shrinking(self, above: Level, level: Level, now: float) -> None:
        elasticity = _elasticity(level, above)
        if level.latency_s > above.latency_s * SLOWER:
            self._hold_or_probe(level, False, now)
            return
        if elasticity < SATURATED_BELOW and elasticity + _doubt(level, above) < 0.5:
            self._base_s = level.latency_s
            self._probe_epochs = FIRST_PROBE_EPOCHS
            self._shrink(level, now)
            return
        if elasticity > 0.4:
            self._full_s = math.inf
            self._base_s = level.latency_s
        self._probe_later()
        self._move(min(above.limit, max(self._knee(above), level.limit)), "probing", now)

    def _shrink(self, level: Level, now: float) -> None:
        self._anchor = level
        self._move(math.floor(self.goal * 0.8), "probing", now)

    def _may_grow(self) -> bool:
        if self.goal >= self.maximum:
            return False
        return self.goal < self._ceiling * CEILING_SHARE or self._epochs >= self._ceiling_until

    def _grow(self, level: Level, now: float) -> None:
        """By the square root, but by a quarter at least: a smaller step could not be told from noise."""
        self._anchor = level
        self._probe_down = True
        self._move(self.goal + math.ceil(max(math.sqrt(self.goal), self.goal / 4)), "growing", now)

    def _probe_later(self) -> None:
        self._probe_epochs = min(self._probe_epochs * 2, LONGEST_PROBE_EPOCHS)
        self._next_probe = self._epochs + self._probe_epochs

    def _knee(self, level: Level) -> int:
        assert self._base_s is not None
        return math.ceil(level.throughput * self._base_s * STANDING_QUEUE)

    def _move(self, limit: int, why: str, now: float) -> None:
        self.goal = min(max(limit, self.minimum), self.maximum)
        self.limit = min(self.limit, self.goal)
        self.why = why
        self._restart(now)

    def _restart(self, now: float) -> None:
        self._epoch = _Epoch(now, self.goal)


def _elasticity(low: Level, high: Level) -> float:
    """Growth of throughput by growth of what is in flight: 1 with room, 0 when full."""
    grown = math.log(high.in_flight / low.in_flight) if high.in_flight > low.in_flight else 0.0
    return math.log(high.throughput / low.throughput) / grown if grown > 0.01 else 1.0


def _gain(low: Level, high: Level) -> float:
    """How much higher throughput is, in standard errors."""
    return math.log(high.throughput / low.throughput) / math.hypot(low.error, high.error)


def _doubt(low: Level, high: Level) -> float:
    """Standard error of the elasticity between two levels."""
    if high.in_flight <= low.in_flight:
        return math.inf
    return math.hypot(low.error, high.error) / math.log(high.in_flight / low.in_flight)
