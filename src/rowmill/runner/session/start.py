"""One start on a run file: settles what finished rows are worth, runs the engine, writes the output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from rowmill.core.names.files import is_remote
from rowmill.core.replies.accuracy import Accuracy
from rowmill.core.rows.outputs.batch_result_lines import RESULT_FORMS
from rowmill.errors import SIGNAL_REASONS, ChangedError, DatabaseError, OutputError, StopReason, exit_code
from rowmill.events import Event, Notice
from rowmill.io.files import exists
from rowmill.io.sinks import translated
from rowmill.job import AnswerSpec, Job
from rowmill.job.version import fingerprint, version_keys
from rowmill.ports import Chunk, Observer
from rowmill.records import GOOD, Result
from rowmill.runner.output.batch_results import write_results
from rowmill.runner.output.destinations import TableDestination, destination_of, output_fingerprint, stands
from rowmill.runner.output.exporting import failures_path, write_failures, write_output
from rowmill.runner.session.loop import in_thread, run_in_thread, signals, until_stopped
from rowmill.runner.session.session import Session
from rowmill.runner.setup.endpoints import Endpoint, redactor
from rowmill.runner.setup.plan import Input, Plan
from rowmill.runner.setup.pricing import odd_prices
from rowmill.runner.setup.versions import decide, find_change
from rowmill.store import changes
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer, most_uncommitted


class Ended(NamedTuple):
    """How the engine's part of a start ended; `message` is for the user."""

    session: Session
    reason: StopReason
    message: str


class Start:
    """One start on a run file that is locked and exists; `opened` None means that the input is what is stored.

    With `writes_output` false the answers stay in the run file, from which the caller reads them.
    """

    writes_output = True

    def __init__(
        self, plan: Plan, endpoints: Sequence[Endpoint], opened: Input | None, observers: Sequence[Observer]
    ) -> None:
        self.plan = plan
        self.endpoints = endpoints
        self.observers = observers
        self._opened = opened
        with RunFileReader(plan.run_file) as reader:
            if opened is not None and opened.is_empty and reader.row_total() and plan.job.source == "-":
                self._opened = None
                self._notify(
                    Notice(
                        f"no input on standard input: going on with the {reader.row_total():,} rows "
                        "that were read from it before"
                    )
                )
            if plan.target is None and is_remote(plan.output) and plan.job.run_file is None and not reader.row_total():
                self._notify(Notice(f"the run file of {plan.output} is here: {plan.run_file}"))
            self._warn_of_kill(reader)
            for words in (*odd_prices(endpoints), *(opened.notes if opened is not None else ())):
                self._notify(Notice(words))
        self.writer = self._make_writer()
        self._after_pilot = self._chooses_anew = False
        self._versions: Mapping[str, int] = {}
        self._session: Session | None = None
        self._stopped: StopReason | None = None

    def _make_writer(self) -> Writer:
        return Writer(self.plan.run_file, redactor(self.endpoints))

    def _notify(self, event: Event) -> None:
        for observer in self.observers:
            observer.notify(event)

    def go(self, prepare: Callable[[], object], interrupts: bool) -> Result:
        """Runs the engine and writes the output."""
        return self._finish(*self.run_engine(prepare, interrupts))

    def run_engine(
        self, prepare: Callable[[], object], interrupts: bool, last: Callable[[Any], object] | None = None
    ) -> Ended:
        """Prepares the run file, runs the engine in its own thread, does `last` in the run file, and closes it."""
        reason: StopReason | None = None
        try:
            session = self._prepared(prepare)
            with signals(lambda number: session.stop(SIGNAL_REASONS[number]), wanted=interrupts):
                reason, message = run_in_thread(lambda: session.execute(self._versions))
            if last is not None:
                self.writer.do(last)
        finally:
            self.writer.close(reason.value if reason is not None else None)
        return Ended(session, reason, message)

    async def go_here(self, prepare: Callable[[], object]) -> Result:
        """As `go`, on the running loop, with the file work in threads; cancelling drops what is in flight."""
        return await in_thread(self._finish, *await self.engine_here(prepare))

    async def engine_here(self, prepare: Callable[[], object], last: Callable[[Any], object] | None = None) -> Ended:
        """As `run_engine`, on the running loop."""
        reason: StopReason | None = None
        try:
            session = await in_thread(self._prepared, prepare)
            ended = Ended(session, *await until_stopped(session.execute(self._versions), session.stop))
            reason = ended.reason
            if last is not None:
                await in_thread(self.writer.do, last)
        finally:
            await in_thread(self.writer.close, reason.value if reason is not None else None)
        return ended

    def _prepared(self, prepare: Callable[[], object]) -> Session:
        prepare()
        session = Session(self.plan, self.endpoints, self.writer, self._chunks(), self._hint(), self.observers)
        session.after_pilot, session.chooses_anew = self._after_pilot, self._chooses_anew
        self._session = session
        if self._stopped is not None:
            session.stop(self._stopped)
        return session

    def stop(self, reason: StopReason) -> None:
        """Asks the engine to end, from any thread; a second time drops what is in flight."""
        self._stopped = reason
        if self._session is not None:
            self._session.stop(reason)

    def begin(self, on_change: str | None, confirm: Callable[[str], bool] | None) -> None:
        """Prepares a run over the whole input."""
        self.settle_versions(on_change, confirm)
        self._after_pilot = self.writer.do(changes.take_over_sample)
        self._chooses_anew = self.writer.do(lambda c: changes.choose_rows(c, _choice_words(self.plan.job)))

    def settle_versions(self, on_change: str | None, confirm: Callable[[str], bool] | None) -> None:
        """Compares the job with the one that finished rows were answered under; then makes it the file's job."""
        definition = self.plan.definition()
        with RunFileReader(self.plan.run_file, checked=False) as reader:
            stored = reader.versions()
            change = find_change(stored, definition)
        if change is not None:
            choice = decide(change, on_change, confirm)
            ids = [version.id for version in change.versions]
            if choice == "rerun":
                self.writer.do(lambda c: changes.send_again_by_version(c, ids))
            elif choice == "keep":
                self.writer.do(lambda c: changes.accept_versions(c, ids))
                if change.schema_changed:
                    self.writer.do(lambda c: changes.read_again_by_version(c, ids))
            else:
                raise ChangedError(f"--on-change must be keep or rerun, not {choice}")
        self._set_versions(definition, accepted=False)
        current = list(self._versions.values())
        self.writer.do(lambda c: changes.try_unsent_again(c, current))
        job = self.plan.job
        fallback = "" if job.answer is None or job.answer.stand_in is None else _fallback_words(job.answer)
        self.writer.do(lambda c: changes.apply_fallback(c, fallback))
        self.writer.do(lambda c: changes.remember_job(c, job.to_json().decode()))

    @property
    def versions(self) -> Mapping[str, int]:
        """The version under which each endpoint answers, once they are settled."""
        return self._versions

    def requeue(self, statuses: Sequence[str]) -> None:
        """Makes rows with these statuses pending, under a version of the job that stays accepted."""
        self._set_versions(self.plan.definition(), accepted=True)
        number = self.writer.do(lambda c: changes.send_again_by_status(c, statuses))
        if not number:
            self._notify(Notice(f"no row is {' or '.join(statuses)}; there is nothing to try again"))

    def _set_versions(self, definition: Mapping[str, Any], *, accepted: bool) -> None:
        keys = version_keys(self.plan.job)

        def task(connection: Any) -> dict[str, int]:
            return {
                endpoint.name: changes.version_id(
                    connection,
                    fingerprint(definition, key),
                    key,
                    {**definition, "models": {key: definition["models"][key]}},
                    accepted=accepted,
                )
                for endpoint, key in zip(self.endpoints, keys, strict=True)
            }

        self._versions = self.writer.do(task)

    def _chunks(self) -> Iterator[Chunk] | None:
        return None if self._opened is None else self._opened.chunks

    def _hint(self) -> int | None:
        return None if self._opened is None else self._opened.size_hint

    def _warn_of_kill(self, reader: RunFileReader) -> None:
        sessions = reader.sessions()
        if sessions and sessions[-1].ended is None:
            pending = reader.row_total() - sum(reader.totals().counts.values())
            peak = sessions[-1].peak_in_flight
            most = min(peak + most_uncommitted(peak), pending)
            if most:
                self._notify(Notice(f"the last run was cut off: at most {most:,} rows may have been paid for twice"))

    def _finish(self, session: Session, reason: StopReason, message: str) -> Result:
        figures = session.figures()
        output = failures = None
        found = Found()
        pending: int | None = None
        with RunFileReader(self.plan.run_file, checked=False) as reader:
            counts = reader.totals().counts
            if reader.is_complete():
                pending = reader.row_total() - sum(counts.values())
            if pending == 0:
                reason, message = StopReason.FINISHED, ""
                if self.writes_output:
                    try:
                        output, failures, found = self._write_output(reader, counts)
                    except (OutputError, DatabaseError) as error:
                        reason, message = StopReason.OUTPUT, f"every row is answered, but {error}"
            elif reason is StopReason.FINISHED:
                reason = StopReason.SOURCE
                message = "the input has not been read to its end; run the first command again to go on"
        if self.plan.job.dedupe:
            figures = replace(figures, counts=counts)
        idle = reason is StopReason.FINISHED and figures.done > 0 and figures.session_rows == 0
        return replace(
            self.stopped(Ended(session, reason, message)),
            exit_code=exit_code(reason, has_bad_rows=any(n for status, n in counts.items() if status not in GOOD)),
            figures=figures,
            output=output,
            failures=failures,
            nothing_to_do=idle,
            accuracy=found.object,
            accuracy_lines=found.lines,
        )

    def stopped(self, ended: Ended) -> Result:
        """The result of a start that writes no output."""
        return Result(
            reason=ended.reason,
            exit_code=exit_code(ended.reason),
            message=ended.message,
            figures=ended.session.figures(),
            output=None,
            failures=None,
            run_file=str(self.plan.run_file),
        )

    def _write_output(self, reader: RunFileReader, counts: Mapping[str, int]) -> tuple[str, str | None, Found]:
        """Writes output and failures, unless they stand there already as this run file would write them."""
        job = self.plan.job
        with translated(job.output):
            if stands(reader, job):
                path = failures_path(job.stem)
                return job.output, path if exists(path) else None, Found.stored(reader.metadata("accuracy"))
        accuracy = Accuracy(job.answer.expect) if job.answer is not None and job.answer.expect else None
        if self.plan.format in RESULT_FORMS:
            failures = write_results(reader, job.output, failures_path(job.output), self.plan.format).failures
        else:
            destination = destination_of(job, self.plan.format, self.plan.run_file)
            write_output(reader, job, destination, accuracy=accuracy)
            if isinstance(destination, TableDestination):
                destination.settle()
            failures = write_failures(reader, job.stem, counts)
        found = Found() if accuracy is None else Found(accuracy.object(), accuracy.lines())
        with translated(job.output):
            fingerprint = output_fingerprint(job)
        writer = Writer(self.plan.run_file)
        writer.do(lambda c: changes.remember_written(c, fingerprint, json.dumps(found)))
        writer.close(None)
        return job.output, failures, found


class Found(NamedTuple):
    """What the answers were worth, as the run file keeps it beside the fingerprint of the output."""

    object: Mapping[str, object] | None = None
    lines: Sequence[str] = ()

    @classmethod
    def stored(cls, text: str | None) -> Found:
        return cls() if text is None else cls(*json.loads(text))


def _fallback_words(answer: AnswerSpec) -> str:
    return json.dumps([answer.fallback, sorted(answer.fallback_for)], sort_keys=True, ensure_ascii=False)


def _choice_words(job: Job) -> str:
    seed = None if job.sample is None else job.seed
    return json.dumps([job.where, job.sample, seed, job.limit], ensure_ascii=False)


S = TypeVar("S", bound=Start)


async def started(start: Callable[[], S]) -> S:
    """Makes a start in a thread; one that is cancelled just then leaves no thread behind."""
    made: list[S] = []
    try:
        await in_thread(lambda: made.append(start()))
    except BaseException:
        for begun in made:
            begun.writer.close(None)
        raise
    return made[0]
