"""Measures several concurrencies on fresh rows of the job's own input; the answers stay in its run file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rowmill.core.measures.tuning import (
    REFINEMENTS,
    Advice,
    Measured,
    advise,
    ladder,
    next_in_flight,
    rows_of,
    why_ended,
)
from rowmill.core.measures.tuning_limits import MOST_IN_FLIGHT, STEP_S
from rowmill.core.rows.selection import draw, keep
from rowmill.engine.rate_gate import RateGate
from rowmill.errors import SIGNAL_REASONS, ExitCode, JobError, StopReason, exit_code
from rowmill.job import Job
from rowmill.ports import Observer
from rowmill.runner.commands.meter import Meter
from rowmill.runner.session.loop import SystemClock, leave, run_in_thread, signals
from rowmill.runner.session.run_files import ensure_run_file
from rowmill.runner.session.session import MeasurementStep, Session, SessionRules, most_in_flight
from rowmill.runner.session.start import Start
from rowmill.runner.setup.endpoints import Endpoint, WritingProvider, open_providers, redactor, resolve_endpoints
from rowmill.runner.setup.plan import Plan, make_plan, open_input, watch_columns
from rowmill.runner.setup.pricing import priced
from rowmill.store import changes
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer

FEWEST_ROWS = 5
STEP_ENDS = (StopReason.FINISHED, StopReason.MAX_DURATION)
TUNED = "tune"  # why a step's session ended, as `status` shows it
CHOICE = "tune"  # see `changes.choose_rows`
PENDING, FINISHED = 1, 2


class TuneRules(NamedTuple):
    """`step_rows`: rows that a step is measured over (None: by its in-flight); a step takes `step_s` at most."""

    step_rows: int | None = None
    step_s: float = STEP_S
    most: int = MOST_IN_FLIGHT


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What was measured, in the order of the steps, and what follows.  `rows_kept` answers are in the run file.

    `advice` is None where nothing can be recommended; `message` says why it ended.
    """

    steps: Sequence[Measured]
    advice: Advice | None
    exit_code: int
    message: str
    rows_kept: int
    run_file: str


def tune(
    job: Job,
    rules: TuneRules | None = None,
    *,
    on_change: str | None = None,
    stepped: Callable[[Measured], None] = lambda step: None,
    observers: Sequence[Observer] = (),
    interrupts: bool = True,
) -> TuneReport:
    """Blocks until more in flight brings nothing; `stepped` is called after each step, from the engine's thread.

    Every step sends rows that no other step has sent and no earlier run has finished.  Raises JobError before
    anything is sent.
    """
    rules = rules or TuneRules()
    with signals(leave, wanted=interrupts):
        _check(job, rules)
        plan = make_plan(job)
        endpoints = priced(job, resolve_endpoints(job))
        open_input(plan)
        with RunFileLock(plan.run_file):
            ensure_run_file(plan)
            start = Start(plan, endpoints, None, observers)
            try:
                versions = start.settle_versions(on_change, None).versions
            finally:
                start.writer.close(None)
            rules = rules._replace(most=most_in_flight(rules.most))
            pool = _store_sample(plan, _rows_needed(rules))
            tuning = _Tuning(plan, endpoints[0], versions, pool, rules, _Watchers(stepped, observers))
            with signals(lambda number: tuning.stop(SIGNAL_REASONS[number]), wanted=interrupts):
                run_in_thread(tuning.execute)
            return tuning.report()


def _check(job: Job, rules: TuneRules) -> None:
    faults = []
    if job.source == "-":
        faults.append("tune reads the input twice, and standard input can be read only once: write it to a file first")
    if len(job.endpoints) != 1:
        faults.append("tune measures one endpoint at a time: name it with -m")
    if rules.most < 1 or (rules.step_rows is not None and rules.step_rows < 1) or not rules.step_s > 0:
        faults.append("--most, --step-rows and --step-s must be above 0")
    if faults:
        raise JobError(*faults)


def _rows_needed(rules: TuneRules) -> int:
    steps = [_step_rows(rung, rules) + rung for rung in ladder(rules.most)]
    return sum(steps) + REFINEMENTS * steps[-1]


def _step_rows(in_flight: int, rules: TuneRules) -> int:
    return max(rows_of(in_flight, rules.step_rows), in_flight)


def _store_sample(plan: Plan, size: int) -> list[int]:
    """Draws rows that no run has finished, stores them beside what is stored, and returns their indices."""
    marks = _marks(plan)
    rows_seen = 0

    def fresh() -> Iterator[int]:
        nonlocal rows_seen
        for chunk in open_input(plan).chunks:
            rows_seen += len(chunk)
            for offset, index in enumerate(chunk.indices):
                if offset not in chunk.faults and (index >= len(marks) or marks[index] != FINISHED):
                    yield index

    pool = draw(fresh(), size, plan.job.seed)
    if len(pool) <= FEWEST_ROWS:
        raise JobError(f"tune needs at least {FEWEST_ROWS + 1} rows that are not finished; there are {len(pool)}")
    drawn = frozenset(pool)
    chunks = keep(open_input(plan).chunks, lambda i: i in drawn or (i < len(marks) and marks[i] != 0))
    writer = Writer(plan.run_file)
    try:
        spool = Spool(writer, SpoolRules(plan.key_names, watch_columns(plan), is_sample=True), chunks)
        spool.read_all()
        if spool.progress.rows == rows_seen:
            writer.do(changes.end_input)
        else:
            writer.do(lambda c: changes.choose_rows(c, CHOICE))
    finally:
        writer.close(None)
    return pool


def _marks(plan: Plan) -> bytearray:
    """For each row of the input, by index, whether it is in the run file and whether it is finished there."""
    marks = bytearray()
    with RunFileReader(plan.run_file, checked=False) as reader:
        for indices, finished in reader.indices():
            marks.extend(bytes(indices[-1] + 1 - len(marks)))
            for index in indices:
                marks[index] = FINISHED if index in finished else PENDING
    return marks


class _Watchers(NamedTuple):
    """What is called with each step, and who watches its session."""

    stepped: Callable[[Measured], None]
    observers: Sequence[Observer]


class _Tuning:
    """The steps, one after the other on one loop and over one open provider; `stop` is safe from any thread."""

    def __init__(
        self,
        plan: Plan,
        endpoint: Endpoint,
        versions: Mapping[str, int],
        pool: list[int],
        rules: TuneRules,
        watchers: _Watchers,
    ) -> None:
        self._plan = plan
        self._endpoint = endpoint
        self._versions = versions
        self._pool = pool
        self._rules = rules
        self._watchers = watchers
        self._session: Session | None = None
        self._reason: StopReason | None = None
        self._message = ""
        self._steps: list[Measured] = []
        self._rows_kept = 0

    def stop(self, reason: StopReason) -> None:
        """Ends the step under way and makes no other; what is in flight is awaited, unless it is called again."""
        self._reason = reason
        if self._session is not None:
            self._session.stop(reason)

    def report(self) -> TuneReport:
        """What there is so far."""
        advice = advise(self._steps)
        if self._reason is not None:
            code = exit_code(self._reason)
        else:
            code = ExitCode.STOPPED if advice is None else ExitCode.FINISHED
        return TuneReport(self._steps, advice, code, self._message, self._rows_kept, str(self._plan.run_file))

    async def execute(self) -> None:
        """Makes steps until the next one would bring nothing."""
        clock = SystemClock(asyncio.get_running_loop())
        gate = self._endpoint.gate(clock)
        async with open_providers(self._plan.job, self._plan.schema, [self._endpoint]) as providers:
            while self._reason is None:
                in_flight = next_in_flight(self._steps, self._rules.most)
                if in_flight is None:
                    self._message = why_ended(self._steps, self._rules.most)
                    return
                rows = min(_step_rows(in_flight, self._rules), len(self._pool) - in_flight)
                if rows < max(in_flight, FEWEST_ROWS):
                    self._message = f"too few fresh rows are left to try {in_flight} in flight"
                    return
                await self._step(in_flight, rows, providers, gate)

    async def _step(self, in_flight: int, rows: int, providers: Sequence[WritingProvider], gate: RateGate) -> None:
        picks = frozenset(self._pool[: rows + in_flight])
        self._pool = self._pool[rows + in_flight :]
        fixed = replace(self._endpoint, spec=self._endpoint.spec.model_copy(update={"in_flight": in_flight}))
        writer = Writer(self._plan.run_file, redactor([fixed]))
        reason: StopReason | None = None
        loop = asyncio.get_running_loop()
        try:
            meter = Meter(writer, loop.time, in_flight, rows, lambda: session.stop(StopReason.MAX_DURATION))
            session_rules = SessionRules(self._versions, step=MeasurementStep(picks, meter, gate))
            session = Session(self._plan, [fixed], writer, None, session_rules, self._watchers.observers)
            self._session = session
            if self._reason is not None:
                session.stop(self._reason)
            timer = loop.call_later(self._rules.step_s, meter.close)
            try:
                reason, message = await session.execute_with(providers)
            finally:
                timer.cancel()
        finally:
            await asyncio.to_thread(writer.close, TUNED if reason in STEP_ENDS else reason)
        self._rows_kept += meter.rows_kept
        if reason in STEP_ENDS or meter.is_full:
            self._steps.append(meter.measured())
            self._watchers.stepped(self._steps[-1])
        if reason not in STEP_ENDS:
            self._reason, self._message = reason, message
