"""One start on a run file: prepares it, runs the engine in a session, writes the output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rowmill.core.names.files import is_remote
from rowmill.errors import SIGNAL_REASONS, DatabaseError, OutputError, StopReason, exit_code
from rowmill.events import Notice
from rowmill.job import Job
from rowmill.ports import Observer
from rowmill.records import GOOD, Result, Status
from rowmill.runner.output.final_output import FinalOutput, final_output
from rowmill.runner.session.job_versions import settle_versions, stored_versions
from rowmill.runner.session.loop import in_thread, run_in_thread, signals, until_stopped
from rowmill.runner.session.session import Session, SessionRules, found_again
from rowmill.runner.setup.endpoints import Endpoint, redactor
from rowmill.runner.setup.plan import Input, Plan, watch_columns
from rowmill.runner.setup.pricing import odd_prices
from rowmill.store import changes
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer, most_uncommitted

Prepare = Callable[[], SessionRules]


class Ended(NamedTuple):
    """How the engine's part of a start ended; `message` is for the user."""

    session: Session
    reason: StopReason
    message: str


class Start:
    """One start on a run file that is locked and exists; `opened` None means that the input is what is stored.

    `make_writer` opens the run file for writing (None: the usual way).  With `writes_output` false the answers stay
    in the run file, from which the caller reads them.

    The `prepare` of each way to run calls one of the methods that return `SessionRules`.
    """

    def __init__(
        self,
        plan: Plan,
        endpoints: Sequence[Endpoint],
        opened: Input | None,
        observers: Sequence[Observer],
        *,
        make_writer: Callable[[], Writer] | None = None,
        writes_output: bool = True,
    ) -> None:
        self.plan = plan
        self.endpoints = endpoints
        self.observers = observers
        self._writes_output = writes_output
        with RunFileReader(plan.run_file) as reader:
            self._opened = self._input_of(opened, reader)
            self._notify(*_first_notices(plan, reader), *odd_prices(endpoints), *(opened.notes if opened else ()))
        self.writer = Writer(plan.run_file, redactor(endpoints)) if make_writer is None else make_writer()
        self._session: Session | None = None
        self._stopped: StopReason | None = None

    def _input_of(self, opened: Input | None, reader: RunFileReader) -> Input | None:
        """What was opened; None where standard input has nothing and what it had before is stored."""
        stored_rows = reader.row_total()
        if opened is None or not opened.is_empty or not stored_rows or self.plan.job.source != "-":
            return opened
        self._notify(
            f"no input on standard input: going on with the {stored_rows:,} rows that were read from it before"
        )
        return None

    def _notify(self, *notices: str) -> None:
        for words in notices:
            for observer in self.observers:
                observer.notify(Notice(words))

    def go(self, prepare: Prepare, interrupts: bool) -> Result:
        """Runs the engine and writes the output."""
        return self._finish(self.run_engine(prepare, interrupts))

    def run_engine(self, prepare: Prepare, interrupts: bool) -> Ended:
        """Prepares the run file, runs the engine in its own thread, and closes the file."""
        reason: StopReason | None = None
        try:
            session = self._make_session(prepare)
            with signals(lambda number: session.stop(SIGNAL_REASONS[number]), wanted=interrupts):
                reason, message = run_in_thread(session.execute)
        finally:
            self.writer.close(reason.value if reason is not None else None)
        return Ended(session, reason, message)

    async def go_here(self, prepare: Prepare) -> Result:
        """As `go`, on the running loop, with the file work in threads; cancelling drops what is in flight."""
        return await in_thread(self._finish, await self.engine_here(prepare))

    async def engine_here(self, prepare: Prepare) -> Ended:
        """As `run_engine`, on the running loop."""
        reason: StopReason | None = None
        try:
            session = await in_thread(self._make_session, prepare)
            ended = Ended(session, *await until_stopped(session.execute(), session.stop))
            reason = ended.reason
        finally:
            await in_thread(self.writer.close, reason.value if reason is not None else None)
        return ended

    def _make_session(self, prepare: Prepare) -> Session:
        rules = prepare()
        session = Session(self.plan, self.endpoints, self.writer, self._opened, rules, self.observers)
        self._session = session
        if self._stopped is not None:
            session.stop(self._stopped)
        return session

    def stop(self, reason: StopReason) -> None:
        """Asks the engine to end, from any thread; a second time drops what is in flight."""
        self._stopped = reason
        if self._session is not None:
            self._session.stop(reason)

    def begin(self, on_change: str | None, confirm: Callable[[str], bool] | None) -> SessionRules:
        """Prepares a run over the whole input."""
        rules = self.settle_versions(on_change, confirm)
        after_pilot = self.writer.do(changes.take_over_sample)
        chooses_anew = self.writer.do(lambda c: changes.choose_rows(c, _choice_words(self.plan.job)))
        return replace(rules, after_pilot=after_pilot, chooses_anew=chooses_anew)

    def settle_versions(self, on_change: str | None, confirm: Callable[[str], bool] | None) -> SessionRules:
        """Prepares a session under the job as it is now; see `job_versions.settle_versions`."""
        return SessionRules(settle_versions(self.plan, self.endpoints, self.writer, on_change, confirm))

    def go_on(self) -> SessionRules:
        """Prepares a session over the rows that are pending, under the job as it is stored."""
        versions = stored_versions(self.plan, self.endpoints, self.writer, accepted=False)
        self.writer.do(lambda c: changes.keep_unreadable(c, versions))
        return SessionRules(versions)

    def requeue(self, statuses: Sequence[str]) -> SessionRules:
        """Makes rows with these statuses pending, under a version of the job that stays accepted."""
        versions = stored_versions(self.plan, self.endpoints, self.writer, accepted=True)
        self.writer.do(lambda c: changes.keep_unreadable(c, versions))
        if not self.writer.do(lambda c: changes.send_again_by_status(c, statuses)):
            self._notify(f"no row is {' or '.join(statuses)}; there is nothing to try again")
        return SessionRules(versions)

    def read_in(self) -> None:
        """Brings the whole input into the run file, so that it is known which rows have ended before."""
        assert self._opened is not None
        watch = watch_columns(self.plan)
        rules = SpoolRules(self.plan.key_names, watch, lambda matched, _: self._notify(found_again(matched)))
        Spool(self.writer, rules, self._opened.chunks).read_all()
        self._opened = None

    def _finish(self, ended: Ended) -> Result:
        """Writes the output where every row has ended; how the run ended."""
        _, reason, message = ended
        figures = ended.session.figures()
        written = FinalOutput()
        with RunFileReader(self.plan.run_file, checked=False) as reader:
            counts, errors = reader.totals().counts, reader.errors()
            has_bad_rows = _has_bad_rows(counts) or bool(counts.get(Status.SKIPPED) and reader.has_skipped_for_cause())
            if reader.is_complete() and reader.row_total() == sum(counts.values()):
                reason, message = StopReason.FINISHED, ""
                if self._writes_output:
                    try:
                        written = final_output(self.plan, reader, counts)
                    except (OutputError, DatabaseError) as error:
                        reason, message = StopReason.OUTPUT, f"every row is answered, but {error}"
            elif reason is StopReason.FINISHED:
                reason = StopReason.SOURCE
                message = "the input has not been read to its end; run the first command again to go on"
        if self.plan.job.dedupe:
            figures = replace(figures, counts=counts)
        return replace(
            self.stopped(ended._replace(reason=reason, message=message)),
            exit_code=exit_code(reason, has_bad_rows=has_bad_rows),
            figures=figures,
            output=written.output,
            failures=written.failures,
            nothing_to_do=reason is StopReason.FINISHED and figures.done > 0 and figures.session_rows == 0,
            accuracy=written.accuracy.object,
            accuracy_lines=written.accuracy.lines,
            errors=errors,
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


def _first_notices(plan: Plan, reader: RunFileReader) -> list[str]:
    """What the user should know of the run file before anything is sent, a sentence each."""
    notices = []
    if plan.target is None and is_remote(plan.output) and plan.job.run_file is None and not reader.row_total():
        notices.append(f"the run file of {plan.output} is here: {plan.run_file}")
    sessions = reader.sessions()
    if sessions and sessions[-1].ended is None:
        pending = reader.row_total() - sum(reader.totals().counts.values())
        peak = sessions[-1].peak_in_flight
        most = min(peak + most_uncommitted(peak), pending)
        if most:
            notices.append(f"the last run was cut off: at most {most:,} rows may have been paid for twice")
    return notices


def _has_bad_rows(counts: Mapping[str, int]) -> bool:
    return any(number for status, number in counts.items() if status not in GOOD)


def _choice_words(job: Job) -> str:
    seed = None if job.sample is None else job.seed
    return json.dumps([job.where, job.sample, seed, job.limit], ensure_ascii=False)


async def started(start: Callable[[], Start]) -> Start:
    """Makes a start in a thread; one that is cancelled just then leaves no thread behind."""
    made: list[Start] = []
    try:
        await in_thread(lambda: made.append(start()))
    except BaseException:
        for begun in made:
            begun.writer.close(None)
        raise
    return made[0]
