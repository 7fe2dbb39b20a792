"""Runs a job from its checks to its output, and takes up rows that ended badly."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rowmill.errors import ChangedError, JobError, OutputError, StopReason
from rowmill.events import Event, Notice
from rowmill.job import Job, apply_overrides
from rowmill.job.version import fingerprint
from rowmill.ports import Chunk, Observer
from rowmill.records import GOOD, Result
from rowmill.runner.exporting import (
    failures_path,
    run_file_of,
    stored_job,
    write_failures,
    write_output,
)
from rowmill.runner.lanes import Endpoint, redactor, resolve_endpoints
from rowmill.runner.loop import in_thread, leave, run_in_thread, signals, until_stopped
from rowmill.runner.plan import Input, Plan, make_plan, open_input
from rowmill.runner.session import Session
from rowmill.runner.versions import decide, find_change
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import UNCOMMITTED_REPLIES, Writer

SIGNAL_REASONS = {2: StopReason.INTERRUPTED, 15: StopReason.TERMINATED}
EXIT_CODES: Mapping[StopReason, int] = {StopReason.INTERRUPTED: 130, StopReason.TERMINATED: 143}
SIDE_FILES = ("-wal", "-shm")


def run(
    job: Job,
    *,
    on_change: str | None = None,
    fresh: bool = False,
    confirm: Callable[[str], bool] | None = None,
    observers: Sequence[Observer] = (),
    interrupts: bool = True,
) -> Result:
    """Runs a job or goes on with it; blocks until it ends.

    `on_change` is keep or rerun; `confirm` is asked where it is None.  `fresh` renames run file and output to *.old.
    Raises JobError before anything is sent; every other end is in the result.
    """
    with signals(leave, wanted=interrupts):
        plan = make_plan(job)
        endpoints = resolve_endpoints(job)
        opened = open_or_stored(plan, fresh)
        lock = RunFileLock(plan.run_file)
        lock.acquire()
        try:
            if fresh:
                set_aside(plan)
            ensure_run_file(plan)
            start = Start(plan, endpoints, opened, observers)
            return start.go(lambda: start.settle_versions(on_change, confirm), interrupts)
        finally:
            lock.release()


def retry(
    output: str,
    *,
    run_file: str | None = None,
    statuses: Sequence[str] = ("failed",),
    overrides: Mapping[str, object] | None = None,
    observers: Sequence[Observer] = (),
    interrupts: bool = True,
) -> Result:
    """Sends rows again that ended with one of these statuses; the rest of the run file stays as it is."""
    with signals(leave, wanted=interrupts):
        path = run_file_of(output, run_file)
        reader = RunFileReader(path)
        try:
            job = stored_job(reader)
        finally:
            reader.close()
        job = apply_overrides(job, {"output": output.removesuffix(".rowmill"), **(overrides or {})})
        plan = make_plan(job, run_file=str(path))
        endpoints = resolve_endpoints(job)
        lock = RunFileLock(path)
        lock.acquire()
        try:
            start = Start(plan, endpoints, None, observers)
            return start.go(lambda: start.requeue(statuses), interrupts)
        finally:
            lock.release()


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
        reader = RunFileReader(plan.run_file)
        try:
            if opened is not None and opened.is_empty and reader.row_total() and plan.job.source == "-":
                self._opened = None
                self._tell(
                    Notice(
                        f"no input on standard input: going on with the {reader.row_total():,} rows "
                        "that were read from it before"
                    )
                )
            self._warn_of_kill(reader)
        finally:
            reader.close()
        self.writer = Writer(plan.run_file, redactor(endpoints))
        self._versions: Mapping[str, int] = {}

    def _tell(self, event: Event) -> None:
        for observer in self.observers:
            observer.tell(event)

    def go(self, prepare: Callable[[], None], interrupts: bool) -> Result:
        """Prepares the run file, runs the engine in its own thread, closes the run file, writes the output."""
        reason: StopReason | None = None
        try:
            session = self._begin(prepare)
            with signals(lambda number: session.stop(SIGNAL_REASONS[number]), wanted=interrupts):
                reason, message = run_in_thread(lambda: session.execute(self._versions))
        finally:
            self.writer.close(reason.value if reason is not None else None)
        return self._finish(session, reason, message)

    async def go_here(self, prepare: Callable[[], None]) -> Result:
        """The same on the running loop, with the file work in threads; cancelling drops what is in flight."""
        reason: StopReason | None = None
        try:
            session = await in_thread(self._begin, prepare)
            reason, message = await until_stopped(session.execute(self._versions), session.stop)
        finally:
            await in_thread(self.writer.close, reason.value if reason is not None else None)
        return await in_thread(self._finish, session, reason, message)

    def _begin(self, prepare: Callable[[], None]) -> Session:
        prepare()
        return Session(self.plan, self.endpoints, self.writer, self._chunks(), self._hint(), self.observers)

    def settle_versions(self, on_change: str | None, confirm: Callable[[str], bool] | None) -> None:
        """Compares the job with the one that finished rows were answered under; then makes it the file's job."""
        definition = self.plan.definition()
        reader = RunFileReader(self.plan.run_file, checked=False)
        try:
            stored = reader.versions()
            change = find_change(stored, definition)
        finally:
            reader.close()
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
        job = self.plan.job.to_json().decode()
        self.writer.do(lambda c: changes.remember_job(c, job))

    def requeue(self, statuses: Sequence[str]) -> None:
        """Makes rows with these statuses pending, under a version of the job that stays accepted."""
        self._set_versions(self.plan.definition(), accepted=True)
        number = self.writer.do(lambda c: changes.send_again_by_status(c, statuses))
        if not number:
            self._tell(Notice(f"no row is {' or '.join(statuses)}; there is nothing to try again"))

    def _set_versions(self, definition: Mapping[str, Any], *, accepted: bool) -> None:
        def task(connection: Any) -> dict[str, int]:
            return {
                endpoint.name: changes.version_id(
                    connection,
                    fingerprint(definition, endpoint.model),
                    endpoint.model,
                    {**definition, "models": {endpoint.model: definition["models"][endpoint.model]}},
                    accepted=accepted,
                )
                for endpoint in self.endpoints
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
            most = min(sessions[-1].peak_in_flight + UNCOMMITTED_REPLIES, pending)
            if most:
                self._tell(Notice(f"the last run was cut off: at most {most:,} rows may have been paid for twice"))

    def _finish(self, session: Session, reason: StopReason, message: str) -> Result:
        figures = session.figures()
        output = failures = None
        pending: int | None = None
        reader = RunFileReader(self.plan.run_file, checked=False)
        try:
            counts = reader.totals().counts
            if reader.fact("complete") == "1":
                pending = reader.row_total() - sum(counts.values())
            if pending == 0:
                reason, message = StopReason.FINISHED, ""
            if pending == 0 and self.writes_output:
                output, failures = self._write_output(reader, counts)
            if pending != 0 and reason is StopReason.FINISHED:
                reason = StopReason.SOURCE
                message = "the input has not been read to its end; run the first command again to go on"
        finally:
            reader.close()
        return Result(
            reason=reason,
            exit_code=exit_code(reason, counts),
            message=message,
            figures=figures,
            output=output,
            failures=failures,
            run_file=str(self.plan.run_file),
            nothing_to_do=reason is StopReason.FINISHED and figures.done > 0 and figures.session_rows == 0,
        )

    def _write_output(self, reader: RunFileReader, counts: Mapping[str, int]) -> tuple[str, str | None]:
        """Writes output and failures, unless they stand there already as this run file would write them."""
        job = self.plan.job
        if _is_written(reader, job):
            path = failures_path(job.output)
            return job.output, str(path) if path.exists() else None
        write_output(reader, job, job.output, self.plan.format)
        failures = write_failures(reader, job.output, counts)
        writer = Writer(self.plan.run_file, bytes)
        writer.do(lambda c: changes.remember_written(c, _seal(job)))
        writer.close(None)
        return job.output, failures


def exit_code(reason: StopReason, counts: Mapping[str, int]) -> int:
    """The process's exit code; see CONTRACT."""
    if reason is StopReason.FINISHED:
        return 3 if any(number for status, number in counts.items() if status not in GOOD) else 0
    return EXIT_CODES.get(reason, 4)


def open_or_stored(plan: Plan, fresh: bool) -> Input | None:
    """Opens the input; None where standard input is a terminal and what was read from it before is to be used."""
    if plan.job.source == "-" and (sys.stdin is None or sys.stdin.isatty()):
        if plan.run_file.exists() and not fresh:
            return None
        raise JobError("nothing is piped into standard input; use for example: cat rows.jsonl | rowmill run - ...")
    return open_input(plan)


def ensure_run_file(plan: Plan) -> None:
    """Makes the run file, or checks the one that is there; raises OutputError for an output without one."""
    if plan.run_file.exists():
        connections.check(plan.run_file)
    elif plan.output.exists():
        raise OutputError(
            f"{plan.output} exists and has no run file {plan.run_file}: it is not overwritten; "
            "choose another -o, or --fresh to rename it to *.old"
        )
    else:
        connections.create(plan.run_file)


def set_aside(plan: Plan) -> None:
    """Renames run file, output and failures to *.old (*.old2, ... where that exists); deletes nothing."""
    names = [plan.run_file, plan.output, failures_path(str(plan.output))]
    names += [plan.run_file.with_name(plan.run_file.name + end) for end in SIDE_FILES]
    number = 1
    while any(_old(path, number).exists() for path in names):
        number += 1
    for path in names:
        if path.exists():
            path.rename(_old(path, number))


def _old(path: Path, number: int) -> Path:
    """Side files keep their ending behind the run file's new name, or SQLite would not find them."""
    ending = ".old" if number == 1 else f".old{number}"
    for side in SIDE_FILES:
        if path.name.endswith(".rowmill" + side):
            return path.with_name(path.name.removesuffix(side) + ending + side)
    return path.with_name(path.name + ending)


def _seal(job: Job) -> str:
    """What an output that was written looked like from outside; the same again means that it is untouched."""
    stat = Path(job.output).stat()
    shape = [job.format, job.answer_prefix, job.meta_prefix, job.escape_formulas]
    return json.dumps([str(Path(job.output).absolute()), stat.st_size, stat.st_mtime_ns, shape])


def _is_written(reader: RunFileReader, job: Job) -> bool:
    return Path(job.output).exists() and reader.fact("written") == _seal(job)
