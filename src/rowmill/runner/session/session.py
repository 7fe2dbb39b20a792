"""One session of the engine on its loop: lanes, feed, spool and store put together, run, and taken apart."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from rowmill.core.measures.histogram import Histogram
from rowmill.core.pricing.budget import Budget
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.batch_lines import BatchBodies
from rowmill.engine.feed import Feed
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import StopReason
from rowmill.events import Notice
from rowmill.observers.summary import lane_object
from rowmill.ports import Chunk, Observer, Store
from rowmill.records import Figures, Request, Status
from rowmill.runner.session.loop import SystemClock
from rowmill.runner.setup.body_prices import BodyPrices
from rowmill.runner.setup.endpoints import Endpoint, WritingProvider, gates, open_providers
from rowmill.runner.setup.plan import Plan, watch_columns
from rowmill.runner.setup.pricing import worst_case_of
from rowmill.store.input_progress import InputProgress
from rowmill.store.matching import Matched
from rowmill.store.pending_rows import PendingRows, PendingRules
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer

SPARE_DESCRIPTORS = 40
MOST_IN_FLIGHT = 4096
ROWS_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class Trial:
    """Which rows a session is about, by index; the store that sees its records on their way to the writer; the way
    into the quota, which several sessions on one loop share.
    """

    only: Set[int]
    store: Store
    gate: RateGate


class Session:
    """Made in the calling thread, executed on a loop; `stop` may be called from any thread, also before."""

    def __init__(
        self,
        plan: Plan,
        endpoints: Sequence[Endpoint],
        writer: Writer,
        chunks: Iterator[Chunk] | None,
        size_hint: int | None,
        observers: Sequence[Observer],
    ) -> None:
        self._plan = plan
        self._endpoints = endpoints
        self._writer = writer
        self._chunks = chunks
        self._observers = observers
        self._run: Run | None = None
        self._stats: RunStats | None = None
        self._stopped: StopReason | None = None
        self._money: Budget | None = None
        self.after_pilot = self.chooses_anew = False
        self._trial: Trial | None = None
        with RunFileReader(plan.run_file, checked=False) as reader:
            self._totals = totals = reader.totals()
            stored = reader.row_total() if reader.is_complete() else None
        self._hint = size_hint if size_hint is not None else stored
        self._before = Before(
            totals.counts,
            totals.requests,
            totals.input_tokens,
            totals.output_tokens,
            totals.known_usd,
            totals.unknown_costs,
            Histogram(totals.latencies),
        )

    def narrow(self, trial: Trial) -> None:
        """Makes the session one step of a measurement; call before `execute`."""
        self._trial = trial

    def stop(self, reason: StopReason) -> None:
        """Asks the session to end; a second time drops what is in flight."""
        if self._run is not None:
            self._run.stop(reason)
        else:
            self._stopped = reason

    def figures(self) -> Figures:
        """How the session stands, or ended."""
        assert self._run is not None
        return self._run.figures()

    async def execute(self, versions: Mapping[str, int]) -> tuple[StopReason, str]:
        """Runs the engine to its end; why it ended, and what to tell the user."""
        async with open_providers(self._plan.job, self._plan.schema, self._endpoints) as providers:
            return await self.execute_with(providers, versions)

    async def execute_with(
        self, providers: Sequence[WritingProvider], versions: Mapping[str, int]
    ) -> tuple[StopReason, str]:
        """The same over providers that are open already, one an endpoint, and stay open."""
        loop = asyncio.get_running_loop()
        clock = SystemClock(loop)
        job = self._plan.job
        spool = self._make_spool(loop)
        router = self._plan.router
        ahead = sum(e.spec.fixed_in_flight or 0 for e in self._endpoints) + ROWS_AHEAD
        progress = spool.progress
        pending = self._pending_rows(progress, loop)
        feeds = {name: Feed(pending.walk(part), ahead, progress.stop) for name, part in router.partitions().items()}
        stats = RunStats(self._before, clock.now, lambda: progress.rows if progress.rows is not None else self._hint)
        self._stats = stats
        store = self._trial.store if self._trial else self._writer
        self._run = run = Run(list(feeds.values()), store, clock, stats, self._observers)
        if self._stopped is not None:
            run.stop(self._stopped)
        ways = [self._trial.gate] if self._trial else gates(self._endpoints, clock)
        for index, partition in enumerate(router.lane_partitions()):
            endpoint, provider = self._endpoints[index], providers[index]
            config = self._priced(self._bounded(endpoint, self._worst_usd(endpoint, provider)), endpoint, provider)
            lane = Lane(
                config,
                provider,
                feeds[partition],
                clock,
                run.notify,
                ways[index],
                run.failover,
                has_partition=partition is not None,
            )
            run.add(lane, self._rules(index))
        self._writer.begin(loop, versions)
        self._writer.snapshot = self._snapshot
        spool.start()
        try:
            return await run.execute(RunLimits(job.max_duration_s, job.max_failure_rate, self._budget()))
        finally:
            progress.stop()
            await asyncio.to_thread(spool.join, 1.0)

    def _make_spool(self, loop: asyncio.AbstractEventLoop) -> Spool:
        rules = SpoolRules(
            self._plan.names,
            watch_columns(self._plan),
            lambda matched, changed: _on_loop(loop, self._moved, matched, changed),
        )
        return Spool(self._writer, rules, self._chunks)

    def _pending_rows(self, progress: InputProgress, loop: asyncio.AbstractEventLoop) -> PendingRows:
        job = self._plan.job
        rules = PendingRules(
            self._plan.value_names,
            self._trial.only if self._trial else None,
            job.dedupe,
            counts_chosen=job.where is not None or job.sample is not None,
        )
        return PendingRows(self._writer, progress, rules, lambda number: _on_loop(loop, self._followed, number))

    def _rules(self, place: int) -> RowRules:
        job, asked = self._plan.job, self._plan.endpoint_prompt(place)
        retry = RetryRules(
            job.retry.attempts,
            job.retry.backoff_s,
            job.retry.max_backoff_s,
            job.row_timeout_s,
            0 if job.answer is None else job.answer.repair,
            None if job.answer is None else job.answer.stand_in,
            frozenset(map(Status, job.endpoints[place].cascade)),
        )
        row_params = None if asked.row_params is None else asked.row_params.of
        prompt = asked.prompt
        if isinstance(prompt, BatchBodies) and job.budget_usd is not None:
            prompt = replace(prompt, unbounded=BodyPrices(job, self._endpoints[place]).fault)
        return RowRules(prompt, asked.params, self._plan.schema, retry, job.empty, row_params, asked.parse)

    def _followed(self, number: int) -> None:
        """How duplicates end is known when their leaders have; until the end of the run they are shown as ok."""
        assert self._stats is not None
        self._stats.moved({Status.OK: number})

    def _moved(self, matched: Matched, changed: Mapping[str, int]) -> None:
        assert self._run is not None
        assert self._stats is not None
        self._stats.moved(changed)
        if self.after_pilot and not matched.left:
            self._run.notify(Notice(f"the pilot's {matched.found:,} finished rows are taken over"))
            return
        self._run.notify(found_again(matched, chosen_anew=self.chooses_anew))

    def _worst_usd(self, endpoint: Endpoint, provider: WritingProvider) -> Callable[[Request], float] | None:
        return worst_case_of(self._plan.job, endpoint, provider.body)

    def _priced(self, config: LaneConfig, endpoint: Endpoint, provider: WritingProvider) -> LaneConfig:
        """The lane's configuration, with prices of its own for each body of a batch file."""
        if not endpoint.batch:
            return config
        prices = BodyPrices(self._plan.job, endpoint)
        return replace(config, price_of=prices.of, worst_usd=prices.worst_usd(provider.body))

    def _budget(self) -> Budget | None:
        limit_usd = self._plan.job.budget_usd
        if limit_usd is None:
            return None
        spent = self._totals
        if spent.unknown_costs and not spent.unconfirmed_usd:
            assert self._run is not None
            text = f"{spent.unknown_costs:,} earlier requests of unknown cost are not counted in the budget"
            self._run.notify(Notice(text))
        self._money = Budget(limit_usd, spent.known_usd + spent.unconfirmed_usd, spent.unconfirmed_usd)
        return self._money

    def _bounded(self, endpoint: Endpoint, worst_usd: Callable[[Request], float] | None) -> LaneConfig:
        """The lane's configuration with no more in flight than there are descriptors for."""
        wanted = endpoint.spec.fixed_in_flight or MOST_IN_FLIGHT
        most = most_in_flight(wanted)
        config = endpoint.lane_config(self._plan.job, most, worst_usd)
        if config.in_flight is not None and config.in_flight > most:
            assert self._run is not None
            text = f"too few files may be open (ulimit -n): {most} requests in flight, not {config.in_flight}"
            self._run.notify(Notice(text))
            config = replace(config, in_flight=most)
        return config

    def _snapshot(self) -> Mapping[str, Any]:
        """What the session's entry in the run file says; called in the store's thread."""
        assert self._run is not None
        assert self._stats is not None
        figures = self._run.figures()
        lanes = self._run.lanes
        return {
            "peak_in_flight": sum(lane.peak_in_flight for lane in lanes),
            "requests": sum(lane.stats.requests for lane in lanes),
            "input_tokens": sum(lane.stats.input_tokens for lane in lanes),
            "output_tokens": sum(lane.stats.output_tokens for lane in lanes),
            "cost_usd": sum(lane.stats.cost_usd for lane in lanes),
            "unknown_costs": sum(lane.stats.unknown_costs for lane in lanes),
            # What is in flight counts as spent, in case the process is killed.
            "unconfirmed_usd": sum(lane.stats.unconfirmed_usd for lane in lanes)
            + (self._money.reserved_usd if self._money is not None else 0.0),
            "latencies": self._stats.latencies.buckets(),
            "snapshot": {
                "total": figures.total,
                "rows_per_s": round(figures.rows_per_s, 3),
                "eta_s": None if figures.eta_s is None else round(figures.eta_s, 1),
                "lanes": [lane_object(lane) for lane in figures.lanes],
            },
        }


def found_again(matched: Matched, *, chosen_anew: bool = False) -> Notice:
    """What the user is told where the input has changed, or other rows of it are asked for."""
    why, it = (
        ("other rows of the input are chosen", "among them") if chosen_anew else ("the input has changed", "in it")
    )
    text = f"{why}: {matched.found:,} finished rows were found again {it}"
    if matched.left:
        text += f", {matched.left:,} are no longer {it} (their replies stay in the run file)"
    return Notice(text)


def most_in_flight(wanted: int) -> int:
    """How many connections this process may hold, up to `wanted`; raises the soft limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_DESCRIPTORS
    if soft < needed and soft < hard:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - SPARE_DESCRIPTORS))


def _on_loop(loop: asyncio.AbstractEventLoop, work: Any, *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(work, *arguments)
