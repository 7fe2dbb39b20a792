"""Counters of a run, and the figures made of them.  It counts; it must not decide anything."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowmill.core.measures.histogram import Histogram
from rowmill.errors import FailureKind
from rowmill.records import STATUS_FAILED, Figures, LaneFigures, Outcome, Usage

WINDOW_S = 10


class Tick(NamedTuple):
    """A lane's counters at one second."""

    at_s: float
    requests: int = 0
    succeeded: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class LaneRates(NamedTuple):
    """A lane's counts a second."""

    requests: float = 0.0
    succeeded: float = 0.0
    failures: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0


class LaneStats:
    """What one lane has done in this session."""

    def __init__(self) -> None:
        self.requests = 0
        self.succeeded = 0
        self.failures = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost_usd = 0.0
        self.unknown_costs = 0
        self.unconfirmed_usd = 0.0
        self.retries: Counter[str] = Counter()
        self.throttles: Counter[str] = Counter()
        self.ticks: deque[Tick] = deque(maxlen=WINDOW_S + 1)

    def failed(self, kind: FailureKind) -> None:
        self.failures += 1
        if kind is FailureKind.THROTTLED:
            self.throttles[kind.value] += 1

    def used(self, usage: Usage) -> None:
        self.input_tokens += usage.input_tokens or 0
        self.output_tokens += usage.output_tokens or 0

    def paid(self, cost_usd: float | None, worst_usd: float) -> None:
        """Counts what one attempt has cost; None is unknown, and then at most `worst_usd`."""
        if cost_usd is None:
            self.unknown_costs += 1
            self.unconfirmed_usd += worst_usd
        else:
            self.cost_usd += cost_usd

    def tick(self, now: float) -> None:
        """Called once a second; rates are differences over the last ten."""
        self.ticks.append(self._counts(now))

    def rates(self, elapsed_s: float | None) -> LaneRates:
        """Over the window, or over the whole session of `elapsed_s` where it has ended."""
        ticks = self.ticks
        if elapsed_s is not None:
            first, last = Tick(0.0), self._counts(elapsed_s)
        elif len(ticks) >= 2:
            first, last = ticks[0], ticks[-1]
        else:
            return LaneRates()
        seconds = max(last.at_s - first.at_s, 1e-9)
        return LaneRates(*((after - before) / seconds for before, after in zip(first[1:], last[1:], strict=True)))

    def _counts(self, at_s: float) -> Tick:
        return Tick(
            at_s=at_s,
            requests=self.requests,
            succeeded=self.succeeded,
            failures=self.failures,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


class LaneView(NamedTuple):
    """What the figures show of a lane besides its stats."""

    name: str
    in_flight: int
    limit: int
    adapts: bool
    waiting: int
    why: str | None
    stats: LaneStats


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier sessions have done, from the run file."""

    counts: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown_costs: int = 0
    latencies: Histogram = field(default_factory=Histogram)


class RunStats:
    """Counts outcomes; `figures` may be called from any thread."""

    def __init__(self, before: Before, now: Callable[[], float], total: Callable[[], int | None]) -> None:
        self._before = before
        self._now = now
        self._total = total
        self.started_s = now()
        self.ended_s: float | None = None
        self.session_rows = 0
        self.session_bad = 0
        self.counts = defaultdict(int, before.counts)
        self.latencies = Histogram()
        self._ticks: deque[tuple[float, int]] = deque(maxlen=WINDOW_S + 1)

    def finished(self, outcome: Outcome) -> None:
        """Counts one row that has ended."""
        self.session_rows += 1
        self.counts[outcome.status] += 1
        if outcome.status is STATUS_FAILED:
            self.session_bad += 1
        if outcome.latency_s is not None:
            self.latencies.add(outcome.latency_s)

    def moved(self, changed: Mapping[str, int]) -> None:
        """The input changed: finished rows were found again or have left it."""
        for status, number in changed.items():
            self.counts[status] += number

    def tick(self, now: float) -> None:
        self._ticks.append((now, self.session_rows))

    def elapsed_s(self) -> float:
        return max((self.ended_s or self._now()) - self.started_s, 1e-9)

    def _rate(self) -> float:
        if self.ended_s is None and len(self._ticks) >= 2:
            (first_s, first), (last_s, last) = self._ticks[0], self._ticks[-1]
            return (last - first) / max(last_s - first_s, 1e-9)
        return self.session_rows / self.elapsed_s()

    def figures(self, lanes: Sequence[LaneView]) -> Figures:
        """The run as it stands now."""
        total = self._total()
        counts = {status: number for status, number in dict(self.counts).items() if number}
        done = sum(counts.values())
        average = self.session_rows / self.elapsed_s()
        latencies = Histogram(self._before.latencies.buckets())
        latencies.merge(self.latencies)
        retries: Counter[str] = Counter()
        throttles: Counter[str] = Counter()
        known_usd = self._before.cost_usd + sum(lane.stats.cost_usd for lane in lanes)
        unknown_costs = self._before.unknown_costs + sum(lane.stats.unknown_costs for lane in lanes)
        for lane in lanes:
            retries.update(dict(lane.stats.retries))
            throttles.update(dict(lane.stats.throttles))
        return Figures(
            total=total,
            counts=counts,
            session_rows=self.session_rows,
            elapsed_s=self.elapsed_s(),
            rows_per_s=self._rate(),
            eta_s=(total - done) / average if total is not None and average > 0 else None,
            requests=self._before.requests + sum(lane.stats.requests for lane in lanes),
            input_tokens=self._before.input_tokens + sum(lane.stats.input_tokens for lane in lanes),
            output_tokens=self._before.output_tokens + sum(lane.stats.output_tokens for lane in lanes),
            cost_usd=None if unknown_costs else round(known_usd, 12),
            known_usd=round(known_usd, 12),
            latency_s={
                name: latencies.percentile(share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
            },
            retries=dict(retries),
            throttles=dict(throttles),
            lanes=[_lane_figures(lane, self.elapsed_s() if self.ended_s is not None else None) for lane in lanes],
        )


def _lane_figures(lane: LaneView, elapsed_s: float | None) -> LaneFigures:
    stats = lane.stats
    rates = stats.rates(elapsed_s)
    tried = rates.succeeded + rates.failures
    return LaneFigures(
        name=lane.name,
        in_flight=lane.in_flight,
        limit=lane.limit,
        adapts=lane.adapts,
        waiting=lane.waiting,
        why=lane.why,
        requests=stats.requests,
        failures=stats.failures,
        rows_per_s=rates.succeeded,
        requests_per_s=rates.requests,
        success_rate=rates.succeeded / tried if tried else None,
        input_tokens_per_s=rates.input_tokens,
        output_tokens_per_s=rates.output_tokens,
        retries=dict(stats.retries),
        throttles=dict(stats.throttles),
    )
