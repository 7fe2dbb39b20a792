"""Runs functions over rows in memory through the engine: values stay the objects that they are, nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.replies.steps import RetryRules
from rowmill.engine.feed import Feed
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import SIGNAL_REASONS, RowError, StopReason
from rowmill.io.sources.arriving import as_they_come
from rowmill.job import Job
from rowmill.ports import Observer, Provider, RowFeed
from rowmill.providers.callable import AsItIs, CallableProvider, Outlet, Passing
from rowmill.records import GOOD, Attempt, Outcome, Row
from rowmill.runner.session.loop import SystemClock, run_in_thread, signals

ITEM = "item"
MISSING = object()
IN_FLIGHT = 20
ROWS_AHEAD = 1000
ROWS_PER_PIECE = 256


@dataclass(frozen=True, slots=True)
class Target:
    """A function and how it is called; `by_status` reads HTTP statuses out of exceptions."""

    name: str
    function: Any
    job: Job
    by_status: bool = True

    def retry_rules(self) -> RetryRules:
        """As the job states them."""
        retry = self.job.retry
        return RetryRules(retry.attempts, retry.backoff_s, retry.max_backoff_s, self.job.row_timeout_s)

    def provider(self, outlet: Outlet) -> CallableProvider:
        """The function as a provider."""
        return CallableProvider(self.function, outlet, most=in_flight_of(self.job), by_status=self.by_status)


@dataclass(slots=True)
class Called:
    """How the calls ended.  `values` has an entry for every row that came in, MISSING where none was returned.

    `bad` is the outcome of every row that ended badly, `errors` what those of this session raised; `error` is what
    broke the reading of the rows off, `kept` where values are stored.
    """

    reason: StopReason
    message: str
    values: list[Any]
    bad: dict[int, Outcome]
    errors: Mapping[int, Exception]
    error: Exception | None = None
    kept: Path | None = None

    def left(self) -> Iterator[int]:
        """Rows that had no turn."""
        return (index for index, value in enumerate(self.values) if value is MISSING and index not in self.bad)

    def raised(self, index: int) -> Exception:
        """What a row that ended badly raised."""
        return error_of(self.bad[index], self.errors)


class _Memory:
    """Stands where the run file is: keeps the outcomes of rows that ended badly; implements `ports.Store`."""

    def __init__(self, ended: Callable[[Outcome], None] | None) -> None:
        self.bad: dict[int, Outcome] = {}
        self._ended = ended

    def save_attempt(self, attempt: Attempt) -> None:
        """Nobody would read it."""

    def save_outcome(self, outcome: Outcome) -> None:
        """Called once a row."""
        if outcome.status not in GOOD:
            self.bad[outcome.index] = outcome
        if self._ended is not None:
            self._ended(outcome)

    def full(self) -> bool:
        return False

    async def room(self) -> None:
        """There is always room."""


class ListFeed:
    """Rows of a list, or some of them, all there from the start: no thread, no waiting; implements `ports.RowFeed`."""

    error: Exception | None = None

    def __init__(self, items: Sequence[Any], indices: Sequence[int]) -> None:
        self._items = items
        self._indices = indices
        self._next = 0

    @property
    def exhausted(self) -> bool:
        return self._next >= len(self._indices)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Nothing comes later."""

    def start(self) -> None:
        """There is nothing to start."""

    async def stop(self) -> None:
        """There is nothing to stop."""

    def take(self) -> Row | None:
        """The next row, None where all have been taken."""
        if self._next >= len(self._indices):
            return None
        index = self._indices[self._next]
        self._next += 1
        return Row(index, {ITEM: self._items[index]})


class Calls:
    """Calls over rows in memory.  `ended` is called with every row as it ends.

    Of several targets `route` names one by number for each row's index; without it any free target takes the next.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        items: Iterable[Any],
        *,
        route: Callable[[int], int] | None = None,
        ended: Callable[[Outcome], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._targets = targets
        self._items = items
        self._route = route
        self._observers = observers
        self._memory = _Memory(ended)
        self._values: list[Any] = []
        self._outlet = Outlet(self._keep, {})
        self._run: Run | None = None
        self._stopped: StopReason | None = None
        self._is_over = False

    def value(self, outcome: Outcome) -> Any:
        """What the call of a row that has ended well returned."""
        return self._values[outcome.index]

    def error(self, outcome: Outcome) -> Exception:
        """What a row that has ended badly raised."""
        return error_of(outcome, self._outlet.errors)

    def stop(self, reason: StopReason) -> None:
        """Asks the calls to end; a second time drops what is in flight.  Does nothing once they have ended."""
        if self._run is None:
            self._stopped = reason
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._run.stop(reason)

    def run(self) -> Called:
        """Executes on a loop of its own.  After a signal what is in flight is awaited."""
        with signals(lambda number: self.stop(SIGNAL_REASONS[number]), wanted=True):
            return run_in_thread(self.execute)

    async def execute(self) -> Called:
        """Calls until no row is left.  Raises what the run cannot go on with."""
        clock = SystemClock(asyncio.get_running_loop())
        first = self._targets[0]
        feeds = self._feeds()
        stats = RunStats(Before(), clock.now, lambda: len(self._values) if feeds[0].exhausted else None)
        rules = RowRules(Passing(_item_of), {}, AsItIs(), first.retry_rules())
        self._run = run = Run(list(dict.fromkeys(feeds)), self._memory, clock, stats, self._observers)
        if self._stopped is not None:
            run.stop(self._stopped)
        outlet = self._outlet
        providers = [target.provider(outlet) for target in self._targets]
        for target, provider, own in zip(self._targets, providers, feeds, strict=True):
            run.add(self._lane(target, provider, own, clock, run), rules)
        try:
            reason, message = await run.execute(RunLimits(first.job.max_duration_s, first.job.max_failure_rate))
        finally:
            self._is_over = True  # the items' own iterator may come back later
            for provider in providers:
                await provider.close()
        if outlet.fatal is not None:
            raise outlet.fatal
        return Called(
            reason=reason,
            message=message,
            values=self._values,
            bad=self._memory.bad,
            errors=outlet.errors,
            error=feeds[0].error,
        )

    def _feeds(self) -> Sequence[RowFeed]:
        """A feed for each target; the same one where any free target takes the next row."""
        items, route, number = self._items, self._route, len(self._targets)
        if route is not None and not isinstance(items, list | tuple):
            items = list(items)
        if not isinstance(items, list | tuple):
            ahead = min(sum(in_flight_of(target.job) for target in self._targets), ROWS_AHEAD)
            return [Feed(self._pieces(), ahead)] * number
        self._values = [MISSING] * len(items)
        if route is None:
            return [ListFeed(items, range(len(items)))] * number
        by_target: list[list[int]] = [[] for _ in self._targets]
        for index in range(len(items)):
            by_target[route(index)].append(index)
        return [ListFeed(items, indices) for indices in by_target]

    def _lane(self, target: Target, provider: Provider, feed: RowFeed, clock: SystemClock, run: Run) -> Lane:
        """Invariant: rows that are routed are for their own target alone, also when it is in trouble."""
        spec, job = target.job.endpoints[0], target.job
        most, is_routed = in_flight_of(job), self._route is not None
        config = LaneConfig(
            name=target.name,
            model=target.name,
            in_flight=most,
            most_in_flight=most,
            timeout_s=job.timeout_s,
            max_outage_s=job.max_outage_s,
            pin=is_routed,
        )
        stated = Limits(spec.rpm)
        gate = RateGate(RateLimiter(stated, spec.headroom), clock, stated=stated)
        peers = run.failover.join(feed, has_partition=is_routed)
        return Lane(config, provider, clock, run.notify, gate, peers)

    def _keep(self, index: int, value: Any) -> bytes:
        self._values[index] = value
        return b"null"

    def _pieces(self) -> Iterator[Sequence[Row]]:
        """Invariant: a row has its entry in `values` before the row is handed out."""
        for piece, _ in as_they_come(self._items, ROWS_PER_PIECE):
            if self._is_over:
                return
            first = len(self._values)
            self._values.extend([MISSING] * len(piece))
            yield [Row(index, {ITEM: item}) for index, item in enumerate(piece, first)]


def error_of(outcome: Outcome, errors: Mapping[int, Exception]) -> Exception:
    """The exception of a row that ended badly; of an earlier session only its words are left."""
    found = errors.get(outcome.index)
    return found if found is not None else RowError(outcome.error or "", outcome.index, outcome.status.value)


def in_flight_of(job: Job) -> int:
    """How many calls at once; callables have no adaptive limit."""
    return job.endpoints[0].fixed_in_flight or IN_FLIGHT


def _item_of(values: Mapping[str, Any]) -> Any:
    return values[ITEM]
