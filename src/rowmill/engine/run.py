"""A run from its start to its end: starts the feed and the workers, supervises, drains, stops.

It must not know what a row is made of, nor where anything is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rowmill.core.pricing.budget import Budget
from rowmill.core.replies.steps import RowState
from rowmill.engine.budget_gate import BudgetGate
from rowmill.engine.failover import Failover
from rowmill.engine.first_rows import FirstRowsCheck
from rowmill.engine.lane import Lane
from rowmill.engine.stats import LaneView, RunStats
from rowmill.engine.watchdog import Watchdog
from rowmill.engine.worker import RowRules, WorkerContext, work
from rowmill.errors import StopReason, StoreFullError
from rowmill.events import Event, Notice, RunEnded, RunStarted
from rowmill.ports import Aside, Clock, Observer, RowFeed, Store
from rowmill.records import Figures, Outcome, Status

T = TypeVar("T")

DRAIN_S = 10.0
RATE_ROWS = 50
SIGNALS = (StopReason.INTERRUPTED, StopReason.TERMINATED)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """When a run stops by itself; None is no limit.

    `max_failure_rate` is 0 to 1, looked at after 50 rows; `budget` knows what earlier sessions spent.
    """

    max_duration_s: float | None = None
    max_failure_rate: float | None = None
    budget: Budget | None = None


class Run:
    """One session of a job.  `stop` may be called from any thread, also twice: the second time it drops everything."""

    def __init__(
        self,
        feeds: Sequence[RowFeed],
        store: Store,
        clock: Clock,
        stats: RunStats,
        observers: Sequence[Observer] = (),
        aside: Aside | None = None,
    ) -> None:
        self.failover = Failover()
        self._contexts: dict[Lane, WorkerContext] = {}
        self._feeds = feeds
        self._store = store
        self._clock = clock
        self._stats = stats
        self._observers = observers
        self._aside = aside
        self._budget_gate = BudgetGate(self._out_of_money)
        self._limits = RunLimits()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._staffed: Counter[Lane] = Counter()
        self._idle = asyncio.Event()
        self._error: BaseException | None = None
        self._reason: StopReason | None = None
        self._message = ""
        self._signals = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def lanes(self) -> Sequence[Lane]:
        """In the order of the job's endpoints."""
        return self.failover.lanes

    def add(self, lane: Lane, rules: RowRules) -> None:
        """Takes on a lane, made with what `failover.join` gave, and what holds for its rows; before `execute`."""
        self.failover.add(lane)
        lane.first_rows = FirstRowsCheck(has_succeeded=self._stats.counts[Status.OK] > 0)
        self._contexts[lane] = WorkerContext(
            rules=rules,
            store=self._store,
            clock=self._clock,
            budget_gate=self._budget_gate,
            finished=partial(self._finished, lane),
            aside=self._aside or _here,
        )

    def notify(self, event: Event) -> None:
        """Passes an event on to the observers."""
        for observer in self._observers:
            observer.notify(event)

    def figures(self) -> Figures:
        """The run as it stands now; from any thread."""
        return self._stats.figures([_view(lane) for lane in self.lanes])

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Asks the run to end; what is in flight is awaited, for 10 s after a signal."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended by itself just now
                self._loop.call_soon_threadsafe(self._stop, reason, message)
        else:
            self._reason, self._message = reason, message

    async def execute(self, limits: RunLimits) -> tuple[StopReason, str]:
        """Runs until no row is left or something stops it; why, and what to tell the user."""
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._budget_gate.budget = limits.budget
        if self._reason is not None:
            return self._reason, self._message
        self._tick()
        if limits.max_duration_s is not None:
            text = f"max_duration_s of {limits.max_duration_s:g} s reached"
            self._deadline = self._loop.call_later(limits.max_duration_s, self._stop, StopReason.MAX_DURATION, text)
        self.notify(RunStarted(self.figures))
        watchdog = Watchdog(lambda words: self.notify(Notice(words)))
        watchdog.start()
        try:
            await self._supervise()
        finally:
            watchdog.stop()
            self._stats.ended_s = self._clock.now()
            for timer in (self._deadline, self._ticker):
                if timer is not None:
                    timer.cancel()
            for feed in self._feeds:
                await feed.stop()
            self.notify(RunEnded())
        return self._ending()

    async def _supervise(self) -> None:
        for feed in self._feeds:
            for lane in self.lanes:  # also those that may have to take it over
                feed.subscribe(lane.wake)
            feed.start()
        self._idle.clear()
        for lane in self.lanes:
            lane.grown = partial(self._staff, lane)
            self._staff(lane)
        await self._idle.wait()
        if isinstance(self._error, StoreFullError):
            self._stop(StopReason.DISK_FULL, str(self._error))
        elif self._error is not None:
            raise self._error
        self._release_held()

    def _staff(self, lane: Lane) -> None:
        """Starts workers up to the lane's limit; where it has fallen, those there are wait for their turn."""
        for _ in range(lane.limit - self._staffed[lane]):
            worker = asyncio.ensure_future(work(lane, self._contexts[lane]))
            self._workers.add(worker)
            worker.add_done_callback(self._worker_ended)
        self._staffed[lane] = max(lane.limit, self._staffed[lane])

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            self._error = self._error or worker.exception()
            self._stop_lanes()
        if not self._workers:
            self._idle.set()

    def _ending(self) -> tuple[StopReason, str]:
        if self._reason is not None:
            return self._reason, self._message
        for feed in self._feeds:
            if feed.error is not None:
                return StopReason.SOURCE, str(feed.error)
        disabled = [lane for lane in self.lanes if lane.breaker.disabled is not None]
        for lane in disabled:
            assert lane.breaker.disabled is not None
            return lane.breaker.disabled, f"{lane.config.name}: {lane.breaker.disabled_why}"
        return StopReason.FINISHED, ""

    def _stop(self, reason: StopReason, message: str) -> None:
        self._signals += reason in SIGNALS
        if reason in SIGNALS and self._signals > 1:  # whatever it was that stopped the run before
            self._cut_off()
            return
        if self._reason is None:
            self._reason, self._message = reason, message
        self._stop_lanes()
        if reason in SIGNALS and self._loop is not None:
            self._loop.call_later(DRAIN_S, self._cut_off)

    def _cut_off(self) -> None:
        for worker in list(self._workers):
            worker.cancel()

    def _stop_lanes(self) -> None:
        for lane in self.lanes:
            lane.stop()
        self._budget_gate.close()

    def _out_of_money(self) -> None:
        budget = self._budget_gate.budget
        assert budget is not None
        words = f"budget_usd of {budget.limit_usd:g} USD: {budget.spent_usd:.4g} USD are spent"
        if budget.unconfirmed_usd:
            words += f" ({budget.unconfirmed_usd:.4g} of it unconfirmed: requests that may have been billed)"
        self._stop(StopReason.BUDGET, f"{words}, and the next request may cost more than is left; raise --budget-usd")

    def _finished(self, lane: Lane, state: RowState, outcome: Outcome, refusal: str | None) -> None:
        if lane.first_rows.is_over:
            self._save(outcome)
        else:
            self._check_first_rows(lane, state, outcome, refusal)
        limit = self._limits.max_failure_rate
        if limit is not None and self._stats.session_rows >= RATE_ROWS:
            share = self._stats.session_bad / self._stats.session_rows
            if share > limit:
                self._stop(
                    StopReason.FAILURE_RATE,
                    f"{self._stats.session_bad} of {self._stats.session_rows} rows failed (max_failure_rate {limit:g})",
                )

    def _check_first_rows(self, lane: Lane, state: RowState, outcome: Outcome, refusal: str | None) -> None:
        check = lane.first_rows
        held = check.held_rows
        for ended in check.admit(state, outcome, refusal):
            self._save(ended)
        if held != check.held_rows:
            lane.wake()
            if check.refused_alike is not None:
                self._give_up(lane, f"the first rows were all refused alike: {check.refused_alike}")

    def _give_up(self, lane: Lane, why: str) -> None:
        """What a lane holds back goes to others; with no other the run stops and it stays pending."""
        if len(self.lanes) == 1:
            self._stop(StopReason.HOPELESS, why)
            return
        lane.give_up(StopReason.HOPELESS, why)
        for held in lane.first_rows.release():
            lane.put_back(held.state, 0.0)

    def _save(self, outcome: Outcome) -> None:
        self._store.save_outcome(outcome)
        self._stats.finished(outcome)

    def _release_held(self) -> None:
        if self._reason is StopReason.HOPELESS:
            return
        for lane in self.lanes:
            for held in lane.first_rows.release():
                self._save(held.outcome)

    def _tick(self) -> None:
        """Once a second: samples the counters that rates are made of."""
        assert self._loop is not None
        now = self._clock.now()
        self._stats.tick(now)
        for lane in self.lanes:
            lane.stats.tick(now)
        self._ticker = self._loop.call_later(1.0, self._tick)


def _view(lane: Lane) -> LaneView:
    adapts = lane.config.in_flight is None
    return LaneView(
        name=lane.config.name,
        in_flight=lane.sending,
        limit=lane.limit,
        adapts=adapts,
        waiting=lane.waiting,
        why=lane.why(),
        stats=lane.stats,
    )


async def _here(work: Callable[[], T], /) -> T:
    """Where nobody offers a thread."""
    return work()
