"""Runs a job over rows in memory; the answers stay in the run file, from which the caller reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rowmill.errors import StopReason
from rowmill.job import Job
from rowmill.ports import Observer, Source
from rowmill.records import GOOD, Outcome, Result
from rowmill.runner.output.exporting import refuse_purged
from rowmill.runner.session.loop import in_thread, leave, signals
from rowmill.runner.session.session import SessionRules
from rowmill.runner.session.start import Start, started
from rowmill.runner.setup.endpoints import Endpoint, redactor, resolve_endpoints
from rowmill.runner.setup.plan import Input, Plan, make_plan, open_input
from rowmill.runner.setup.pricing import priced
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader
from rowmill.store.table_rows import Redact
from rowmill.store.writer import Writer

Prepared = tuple[Plan, Sequence[Endpoint], Input]
Listener = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class MapRules:
    """How to begin: `on_change` as in `run`; finished rows with one of the statuses `retry` are sent again."""

    on_change: str | None = None
    retry: Sequence[str] = ()


class MapRun:
    """One run over rows in memory of what `prepare` makes (see `prepared_map`); source and output are not touched.

    `ended` is called with the rows that have ended well before, in order and before anything is sent, then with every
    row as it ends; it is called from other threads.  `stop` may be called from any thread.
    """

    def __init__(
        self,
        prepare: Callable[[], Prepared],
        rules: MapRules,
        observers: Sequence[Observer] = (),
        ended: Listener | None = None,
    ) -> None:
        self._prepare = prepare
        self._rules = rules
        self._observers = observers
        self._ended = ended
        self._start: Start | None = None
        self._stopped: StopReason | None = None

    def run(self) -> Result:
        """Blocks until the end."""
        with signals(leave, wanted=True):
            plan, endpoints, opened = self._prepare()
            with RunFileLock(plan.run_file):
                start = self._begin(plan, endpoints, opened)
                return start.go(lambda: self._settle(start), interrupts=True)

    async def arun(self) -> Result:
        """The same on the running loop.  Cancelling drops what is in flight; what was answered is saved."""
        plan, endpoints, opened = await in_thread(self._prepare)
        with RunFileLock(plan.run_file):
            start = await started(lambda: self._begin(plan, endpoints, opened))
            return await start.go_here(lambda: self._settle(start))

    def stop(self, reason: StopReason) -> None:
        """Asks the run to end; a second time drops what is in flight."""
        self._stopped = reason
        if self._start is not None:
            self._start.stop(reason)

    def _begin(self, plan: Plan, endpoints: Sequence[Endpoint], opened: Input) -> Start:
        if connections.is_there(plan.run_file):
            connections.check(plan.run_file)
            with RunFileReader(plan.run_file, checked=False) as reader:
                refuse_purged(reader)
        else:
            connections.create(plan.run_file)

        def make_writer() -> Writer:
            return _NotifyingWriter(plan.run_file, redactor(endpoints), self._ended)

        self._start = start = Start(
            plan, endpoints, opened, self._observers, make_writer=make_writer, writes_output=False
        )
        if self._stopped is not None:
            start.stop(self._stopped)
        return start

    def _settle(self, start: Start) -> SessionRules:
        """What is to be sent again, and under which version."""
        rules, retry = start.settle_versions(self._rules.on_change, None), self._rules.retry
        if retry:
            start.writer.do(lambda c: changes.send_again_by_status(c, retry))
        if self._ended is not None:
            start.read_in()
            _notify_finished(start.plan, self._ended)
        return rules


def _notify_finished(plan: Plan, ended: Listener) -> None:
    """Hands on the rows that have ended well before."""
    with RunFileReader(plan.run_file, checked=False) as reader:
        for _, outcomes in reader.outcomes():
            for outcome in outcomes:
                if outcome is not None and outcome.status in GOOD:
                    ended(outcome)


class _NotifyingWriter(Writer):
    """Hands rows on to a listener as they end; they are committed within a fifth of a second."""

    def __init__(self, run_file: Path, redact: Redact | None, ended: Listener | None) -> None:
        super().__init__(run_file, redact)
        self._ended = ended

    def save_outcome(self, outcome: Outcome) -> None:
        super().save_outcome(outcome)
        if self._ended is not None:
            self._ended(outcome)


def prepared_map(job: Job, source: Source) -> Prepared:
    """A prompt about the rows of `source`.  Raises JobError with all that is wrong."""
    plan = make_plan(job)
    return plan, priced(job, resolve_endpoints(job)), open_input(plan, source)
