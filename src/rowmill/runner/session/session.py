"""One session of the engine on its loop: lanes, feed, spool and store put together, run, and taken apart."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from rowmill.core.measures.histogram import Histogram
from rowmill.core.pricing.budget import Budget
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.batch_lines import BatchBodies
from rowmill.core.rows.outputs.earlier import columns_set_aside, why_skipped
from rowmill.engine.feed import Feed
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import StopReason
from rowmill.events import Notice
from rowmill.ports import Observer, Store
from rowmill.providers.threads import OneThread
from rowmill.records import Figures, Status
from rowmill.runner.session.loop import SystemClock
from rowmill.runner.setup.body_prices import BodyPrices
from rowmill.runner.setup.endpoints import Endpoint, WritingProvider, gates, open_providers
from rowmill.runner.setup.plan import Input, Plan, watch_columns
from rowmill.runner.setup.pricing import worst_case_of
from rowmill.store.input_progress import InputProgress
from rowmill.store.matching import Matched
from rowmill.store.pending_rows import PendingRows, PendingRules
from rowmill.store.reader import RunFileReader
from rowmill.store.session_snapshot import snapshot_object
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer

SPARE_DESCRIPTORS = 40
MOST_IN_FLIGHT = 4096
ROWS_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class MeasurementStep:
    """Which rows a session is about, by index; the store that sees its records on their way to the writer; the way
    into the quota, which several sessions on one loop share.
    """

    only: Set[int]
    store: Store
    gate: RateGate


@dataclass(frozen=True, slots=True)
class SessionRules:
    """What was settled in the run file before a session: the version under which each endpoint answers; whether what
    is stored is a pilot's sample; whether other rows of the input are chosen than those stored; whether it is a pilot.

    `step` makes the session one step of a measurement.
    """

    versions: Mapping[str, int]
    after_pilot: bool = False
    chooses_anew: bool = False
    is_pilot: bool = False
    step: MeasurementStep | None = None


class Session:
    """Made in the calling thread, executed on a loop; `stop` may be called from any thread, also before."""

    def __init__(
        self,
        plan: Plan,
        endpoints: Sequence[Endpoint],
        writer: Writer,
        opened: Input | None,
        rules: SessionRules,
        observers: Sequence[Observer],
    ) -> None:
        self._plan = plan
        self._endpoints = endpoints
        self._writer = writer
        self._chunks = None if opened is None else opened.chunks
        self._rules = rules
        self._observers = observers
        self._run: Run | None = None
        self._stats: RunStats | None = None
        self._stopped: StopReason | None = None
        with RunFileReader(plan.run_file, checked=False) as reader:
            columns = reader.columns() if opened is None or opened.first is None else opened.first.columns
            self._totals = totals = reader.totals()
            stored = reader.row_total() if reader.is_complete() else None
        self._hint = stored if opened is None or opened.size_hint is None else opened.size_hint
        self._set_aside = columns_set_aside(columns, plan.job.meta_prefix)
        self._before = Before(
            counts=totals.counts,
            requests=totals.requests,
            input_tokens=totals.input_tokens,
            output_tokens=totals.output_tokens,
            cost_usd=totals.known_usd,
            unknown_costs=totals.unknown_costs,
            latencies=Histogram(totals.latencies),
        )

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

    async def execute(self) -> tuple[StopReason, str]:
        """Runs the engine to its end; why it ended, and what to tell the user."""
        async with open_providers(self._plan.job, self._plan.schema, self._endpoints) as providers:
            return await self.execute_with(providers)

    async def execute_with(self, providers: Sequence[WritingProvider]) -> tuple[StopReason, str]:
        """The same over providers that are open already, one an endpoint, and stay open."""
        loop = asyncio.get_running_loop()
        clock, step = SystemClock(loop), self._rules.step
        spool = self._make_spool(loop)
        progress = spool.progress
        feeds = self._feeds(progress, loop)
        stats = RunStats(self._before, clock.now, lambda: progress.rows if progress.rows is not None else self._hint)
        store, aside = self._writer if step is None else step.store, OneThread()
        run = Run(list(feeds.values()), store, clock, stats, self._observers, aside)
        self._run, self._stats = run, stats
        if self._stopped is not None:
            run.stop(self._stopped)
        rate_gates = gates(self._endpoints, clock) if step is None else [step.gate]
        for number, partition in enumerate(self._plan.router.lane_partitions()):
            config = self._lane_config(self._endpoints[number], providers[number], run)
            lane = Lane(
                config,
                providers[number],
                clock,
                run.notify,
                rate_gates[number],
                run.failover.join(feeds[partition], has_partition=partition is not None),
            )
            run.add(lane, self._row_rules(number))
        budget = self._budget(run)
        self._writer.begin(loop, self._rules.versions)
        self._writer.notify = lambda words: _on_loop(loop, run.notify, Notice(words))
        if budget is not None:
            budget.record = self._writer.keep_account()
        self._writer.snapshot = lambda: _session_columns(run, stats, budget)
        spool.start()
        try:
            job = self._plan.job
            return await run.execute(RunLimits(job.max_duration_s, job.max_failure_rate, budget))
        finally:
            progress.stop()
            aside.close()
            await asyncio.to_thread(spool.join, 1.0)

    def _make_spool(self, loop: asyncio.AbstractEventLoop) -> Spool:
        rules = SpoolRules(
            self._plan.key_names,
            watch_columns(self._plan),
            lambda matched, changed: _on_loop(loop, self._moved, matched, changed),
        )
        return Spool(self._writer, rules, self._chunks)

    def _feeds(self, progress: InputProgress, loop: asyncio.AbstractEventLoop) -> Mapping[int | None, Feed]:
        """A feed for each partition of the rows, ahead of the workers by as many rows as may be in flight and more."""
        job, step = self._plan.job, self._rules.step
        names = self._plan.value_names
        rules = PendingRules(
            names if names is None else sorted({*names, *self._set_aside}),
            None if step is None else step.only,
            job.dedupe,
            counts_chosen=job.where is not None or job.sample is not None,
        )
        pending = PendingRows(self._writer, progress, rules, lambda number: _on_loop(loop, self._followed, number))
        ahead = sum(endpoint.spec.fixed_in_flight or 0 for endpoint in self._endpoints) + ROWS_AHEAD
        partitions = self._plan.router.partitions()
        return {name: Feed(pending.walk(part), ahead, progress.stop) for name, part in partitions.items()}

    def _row_rules(self, number: int) -> RowRules:
        job, asked = self._plan.job, self._plan.endpoint_prompt(number)
        retry = RetryRules(
            attempts=job.retry.attempts,
            backoff_s=job.retry.backoff_s,
            max_backoff_s=job.retry.max_backoff_s,
            row_timeout_s=job.row_timeout_s,
            repair=0 if job.answer is None else job.answer.repair,
            fallback=None if job.answer is None else job.answer.compiled_fallback,
            cascade=frozenset(map(Status, job.endpoints[number].cascade)),
        )
        row_params = None if asked.row_params is None else asked.row_params.of
        prompt = asked.prompt
        if isinstance(prompt, BatchBodies) and job.budget_usd is not None:
            prompt = replace(prompt, bounded=BodyPrices(job, self._endpoints[number]).bounded)
        return RowRules(
            prompt=prompt,
            params=asked.params,
            schema=self._plan.schema,
            retry=retry,
            empty=job.empty,
            row_params=row_params,
            parse=asked.parse,
            why_skipped=why_skipped(job.meta_prefix, self._plan.names) if self._set_aside else None,
        )

    def _followed(self, number: int) -> None:
        """How duplicates end is known when their leaders have; until the end of the run they are shown as ok."""
        assert self._stats is not None
        self._stats.moved({Status.OK: number})

    def _moved(self, matched: Matched, changed: Mapping[str, int]) -> None:
        assert self._run is not None
        assert self._stats is not None
        self._stats.moved(changed)
        if self._rules.is_pilot:  # its sample is another one than is stored, which is no change of the input
            return
        if self._rules.after_pilot and not matched.left:
            self._run.notify(Notice(f"the pilot's {matched.found:,} finished rows are taken over"))
            return
        self._run.notify(Notice(found_again(matched, chosen_anew=self._rules.chooses_anew)))

    def _lane_config(self, endpoint: Endpoint, provider: WritingProvider, run: Run) -> LaneConfig:
        """No more in flight than there are descriptors for; prices of its own for each body of a batch file."""
        job = self._plan.job
        most = most_in_flight(endpoint.spec.fixed_in_flight or MOST_IN_FLIGHT)
        config = endpoint.lane_config(job, most, worst_case_of(job, endpoint, provider.body))
        if config.in_flight is not None and config.in_flight > most:
            text = f"too few files may be open (ulimit -n): {most} requests in flight, not {config.in_flight}"
            run.notify(Notice(text))
            config = replace(config, in_flight=most)
        if not endpoint.batch:
            return config
        prices = BodyPrices(job, endpoint)
        return replace(config, price_of=prices.of, worst_usd=prices.worst_usd(provider.body))

    def _budget(self, run: Run) -> Budget | None:
        limit_usd = self._plan.job.budget_usd
        if limit_usd is None:
            return None
        spent = self._totals
        if spent.unknown_costs and not spent.unconfirmed_usd:
            text = f"{spent.unknown_costs:,} earlier requests of unknown cost are not counted in the budget"
            run.notify(Notice(text))
        return Budget(limit_usd, spent.known_usd + spent.unconfirmed_usd, spent.unconfirmed_usd)


def _session_columns(run: Run, stats: RunStats, budget: Budget | None) -> Mapping[str, Any]:
    """What the session's entry in the run file says; called in the store's thread."""
    lanes = [lane.stats for lane in run.lanes]
    return {
        "peak_in_flight": sum(lane.peak_in_flight for lane in run.lanes),
        "requests": sum(lane.requests for lane in lanes),
        "input_tokens": sum(lane.input_tokens for lane in lanes),
        "output_tokens": sum(lane.output_tokens for lane in lanes),
        "cost_usd": sum(lane.cost_usd for lane in lanes),
        "unknown_costs": sum(lane.unknown_costs for lane in lanes),
        # What is sent counts as spent, in case the machine stops; what still waits to be sent does not.
        "unconfirmed_usd": sum(lane.unconfirmed_usd for lane in lanes)
        + (0.0 if budget is None else budget.sending_usd),
        "latencies": stats.latencies.buckets(),
        "snapshot": snapshot_object(run.figures()),
    }


def found_again(matched: Matched, *, chosen_anew: bool = False) -> str:
    """What the user is told where the input has changed, or other rows of it are asked for."""
    why, it = (
        ("other rows of the input are chosen", "among them") if chosen_anew else ("the input has changed", "in it")
    )
    text = f"{why}: {matched.found:,} finished rows were found again {it}"
    if matched.left:
        text += f", {matched.left:,} are no longer {it} (their replies stay in the run file)"
    return text


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
