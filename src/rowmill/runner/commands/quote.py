"""The pilot: a uniform sample of the input, answered through the engine, and what it says of all rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rowmill.core.pricing.quote import Lengths, Pace, Quote, Sampled, quote
from rowmill.core.sampling import Reservoir
from rowmill.errors import JobError, StopReason
from rowmill.job import Job
from rowmill.observers.summary import where
from rowmill.ports import Chunk, Observer
from rowmill.records import GOOD, Result
from rowmill.runner.session.loop import in_thread, leave, signals
from rowmill.runner.session.run_files import ensure_run_file
from rowmill.runner.session.session import SessionRules
from rowmill.runner.session.start import Ended, Start
from rowmill.runner.setup.endpoints import Endpoint, resolve_endpoints
from rowmill.runner.setup.plan import Input, Plan, make_plan, open_input
from rowmill.runner.setup.pricing import priced
from rowmill.store import changes
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader

QUOTE_ROWS = 200


def quote_job(
    job: Job, *, observers: Sequence[Observer] = (), interrupts: bool = True
) -> tuple[Quote | None, Result | None]:
    """Answers a sample of the job's rows, keeps the answers, and says what all rows will take.

    The sample has `job.pilot` rows, 200 where that is None.  The result comes in place of a quote where the pilot
    stopped early.  Rows answered under another job are sent again.  Raises JobError before anything is sent.
    """
    with signals(leave, wanted=interrupts):
        plan = make_plan(job)
        endpoints = priced(job, resolve_endpoints(job))
        with RunFileLock(plan.run_file):
            ensure_run_file(plan)
            if has_begun(plan):
                run = where(job.output, str(plan.run_file))
                raise JobError(
                    f"the run has begun ({plan.run_file}): `rowmill status {run}` shows how it goes; "
                    "name another output with -o to quote anew"
                )
            pilot = Pilot(plan, endpoints, observers)
            rows = QUOTE_ROWS if job.pilot is None else job.pilot
            stopped = pilot.go(rows, lambda start: start.settle_versions("rerun", None), interrupts)
            return (pilot.quote(), None) if stopped is None else (None, stopped)


def has_begun(plan: Plan) -> bool:
    """Whether the run file holds more than a pilot's sample."""
    with RunFileReader(plan.run_file, checked=False) as reader:
        return reader.row_total() > 0 and not reader.holds_sample()


class Pilot:
    """One pilot on a run file that is locked and exists."""

    def __init__(self, plan: Plan, endpoints: Sequence[Endpoint], observers: Sequence[Observer]) -> None:
        self._plan = plan
        self._endpoints = endpoints
        self._observers = observers
        self._lengths = Lengths()
        self._picked: Mapping[int, int] = {}
        self._start: Start | None = None
        self._ended: Ended | None = None

    def go(self, rows: int, settle: Callable[[Start], SessionRules], interrupts: bool) -> Result | None:
        """Draws the sample and has it answered; a result where it stopped early."""
        start = self._drawn(rows)
        return self._over(start, start.run_engine(self._preparing(start, settle), interrupts))

    async def go_here(self, rows: int, settle: Callable[[Start], SessionRules]) -> Result | None:
        """As `go`, on the running loop."""
        start = await in_thread(self._drawn, rows)
        return self._over(start, await start.engine_here(self._preparing(start, settle)))

    def _drawn(self, rows: int) -> Start:
        plan = self._plan
        if plan.job.source == "-":
            raise JobError("a pilot reads its input twice, and standard input can be read only once: save it to a file")
        self._draw(rows)
        sample = Input(self._sampled(), len(self._picked), is_empty=not self._picked)
        self._start = Start(plan, self._endpoints, sample, self._observers)
        return self._start

    def _preparing(self, start: Start, settle: Callable[[Start], SessionRules]) -> Callable[[], SessionRules]:
        def prepare() -> SessionRules:
            rules = settle(start)
            start.writer.do(changes.begin_sample)
            return replace(rules, is_pilot=True)

        return prepare

    def _over(self, start: Start, ended: Ended) -> Result | None:
        self._ended = ended
        return None if ended.reason is StopReason.FINISHED else start.stopped(ended)

    def declined(self) -> Result:
        """The result where the user did not want to go on."""
        assert self._start is not None
        assert self._ended is not None
        words = "the quote was not approved; the answers of the sample are kept"
        return self._start.stopped(self._ended._replace(reason=StopReason.DECLINED, message=words))

    def quote(self) -> Quote:
        """What all rows will take."""
        with RunFileReader(self._plan.run_file, checked=False) as reader:
            seconds = reader.seconds()
            sample = [
                Sampled(
                    length_bytes=self._picked[outcome.index],
                    input_tokens=outcome.input_tokens,
                    output_tokens=outcome.output_tokens,
                    cost_usd=outcome.cost_usd,
                    seconds=seconds.get(outcome.index),
                    succeeded=outcome.status in GOOD,
                )
                for _, outcomes in reader.outcomes()
                for outcome in outcomes
                if outcome is not None and outcome.index in self._picked
            ]
        return quote(self._lengths, sample, self._pace())

    def _pace(self) -> Pace:
        """The slots that the pilot ended with, and the stated limits as far as they are used."""
        slots = 0 if self._ended is None else sum(lane.limit for lane in self._ended.session.figures().lanes)
        specs = [endpoint.spec for endpoint in self._endpoints]
        rpm = [spec.rpm * spec.headroom if spec.rpm else None for spec in specs]
        tpm = [spec.tpm * spec.headroom if spec.tpm else None for spec in specs]
        return Pace(max(slots, 1), _sum_of(rpm), _sum_of(tpm))

    def _draw(self, rows: int) -> None:
        """Reads the whole input once: the lengths of all rows, and a sample of `rows` of them."""
        sample = Reservoir[tuple[int, int]](rows, random.Random(self._plan.job.seed).randrange)
        lengths = self._lengths
        for chunk in open_input(self._plan).chunks:
            faults = chunk.faults
            rows_of_chunk = zip(chunk.indices, chunk.values(self._plan.names), strict=True)
            for offset, (index, values) in enumerate(rows_of_chunk):
                if offset in faults:
                    continue
                length = length_of(values)
                lengths.add(length)
                sample.add((index, length))
        self._picked = dict(sample.items)

    def _sampled(self) -> Iterator[Chunk]:
        picked = self._picked
        for chunk in open_input(self._plan).chunks:
            offsets = [offset for offset, index in enumerate(chunk.indices) if index in picked]
            if offsets:
                yield chunk.take(offsets)


def length_of(values: Mapping[str, object]) -> int:
    """What a row brings into its prompt, in bytes."""
    total = 0
    for value in values.values():
        text = value if isinstance(value, str) else str(value)
        total += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return total


def _sum_of(limits: Sequence[float | None]) -> float | None:
    """All limits together; None where one endpoint has none."""
    known = [limit for limit in limits if limit is not None]
    return sum(known) if len(known) == len(limits) else None
