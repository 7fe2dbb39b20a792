"""Runs functions over rows in memory through the engine: values stay the objects that they are, nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rowmill.engine.feed import Feed
from rowmill.engine.gate import RateGate
from rowmill.engine.lane import Lane, LaneConfig
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.tally import Before, Tally
from rowmill.engine.worker import RowRules
from rowmill.errors import RowError, StopReason
from rowmill.job import Job
from rowmill.limits.rate import Limits, RateLimiter
from rowmill.ports import Observer, Provider
from rowmill.providers.callable import AsItIs, CallableProvider, Outlet, Passing
from rowmill.records import GOOD, Attempt, Outcome, Row
from rowmill.runner.loop import SystemClock
from rowmill.steps import RetryRules

ITEM = "item"
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
    """How the calls ended: `values` by row where they were kept, `bad` the outcome of every row that ended badly.

    `rows` counts the rows that came in; `error` is what broke the reading of them off.
    """

    reason: StopReason
    message: str
    values: dict[int, Any]
    bad: dict[int, Outcome]
    errors: dict[int, Exception]
    rows: int
    error: Exception | None = None


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


class ListFeed(Feed):
    """Rows of a list: all are there from the start, so that no thread is needed and no worker has to wait."""

    def __init__(self, items: Sequence[Any]) -> None:
        super().__init__(iter(()), 1)
        self._items = items
        self._next = 0

    @property
    def exhausted(self) -> bool:
        return self._next >= len(self._items)

    def start(self) -> None:
        """There is nothing to start."""

    def take(self) -> Row | None:
        """See `Feed`."""
        index = self._next
        if index >= len(self._items):
            return None
        self._next = index + 1
        return Row(index, {ITEM: self._items[index]})


class Calls:
    """Calls over rows in memory, on the running loop.  `ended` is told of every row as it ends.

    Where there are several targets, whoever is free takes the next row.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        items: Iterable[Any],
        *,
        ended: Callable[[Outcome], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._targets = targets
        self._items = items
        self._observers = observers
        self._memory = _Memory(ended)
        self._values: dict[int, Any] = {}
        self._outlet = Outlet(self._keep, {})
        self._rows = 0
        self._run: Run | None = None
        self._stopped: StopReason | None = None

    def value(self, index: int) -> Any:
        """What the call of a row that has ended well returned."""
        return self._values[index]

    def error(self, outcome: Outcome) -> Exception:
        """What a row that has ended badly raised."""
        return error_of(outcome, self._outlet.errors)

    def stop(self, reason: StopReason) -> None:
        """Asks the calls to end; a second time drops what is in flight."""
        if self._run is not None:
            self._run.stop(reason)
        else:
            self._stopped = reason

    async def execute(self) -> Called:
        """Calls until no row is left.  Raises what the run cannot go on with."""
        clock = SystemClock(asyncio.get_running_loop())
        first = self._targets[0]
        feed = self._feed()
        tally = Tally(Before(), clock.now, lambda: self._rows if feed.exhausted else None)
        rules = RowRules(Passing(_item_of), {}, AsItIs(), first.retry_rules())
        self._run = run = Run([feed], self._memory, clock, tally, self._observers)
        if self._stopped is not None:
            run.stop(self._stopped)
        outlet = self._outlet
        providers = [target.provider(outlet) for target in self._targets]
        for target, provider in zip(self._targets, providers, strict=True):
            run.add(self._lane(target, provider, feed, clock, run), rules)
        try:
            reason, message = await run.execute(RunLimits(first.job.max_duration_s))
        finally:
            for provider in providers:
                await provider.close()
        if outlet.fatal is not None:
            raise outlet.fatal
        return Called(reason, message, self._values, self._memory.bad, outlet.errors, self._rows, feed.error)

    def _feed(self) -> Feed:
        if isinstance(self._items, list | tuple):
            self._rows = len(self._items)
            return ListFeed(self._items)
        return Feed(self._pieces(), min(sum(in_flight_of(target.job) for target in self._targets), ROWS_AHEAD))

    def _lane(self, target: Target, provider: Provider, feed: Feed, clock: SystemClock, run: Run) -> Lane:
        spec = target.job.endpoints[0]
        most = in_flight_of(target.job)
        config = LaneConfig(target.name, target.name, most, most, target.job.timeout_s, target.job.max_outage_s)
        stated = Limits(spec.rpm)
        gate = RateGate(RateLimiter(stated, spec.headroom), clock, stated=stated)
        return Lane(config, provider, feed, clock, run.tell, gate, run.roster)

    def _keep(self, index: int, value: Any) -> bytes:
        self._values[index] = value
        return b"null"

    def _pieces(self) -> Iterator[Sequence[Row]]:
        items = iter(self._items)
        while piece := [Row(n, {ITEM: item}) for n, item in enumerate(islice(items, ROWS_PER_PIECE), self._rows)]:
            self._rows += len(piece)
            yield piece


def error_of(outcome: Outcome, errors: Mapping[int, Exception]) -> Exception:
    """The exception of a row that ended badly; of an earlier session only its words are left."""
    found = errors.get(outcome.index)
    return found if found is not None else RowError(outcome.error or "", outcome.index, outcome.status.value)


def in_flight_of(job: Job) -> int:
    """How many calls at once; callables have no adaptive limit."""
    return job.endpoints[0].pinned or IN_FLIGHT


def _item_of(values: Mapping[str, Any]) -> Any:
    return values[ITEM]
