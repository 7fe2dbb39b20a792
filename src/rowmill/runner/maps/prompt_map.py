"""Runs a job over rows in memory; the answers stay in the run file, from which the caller reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rowmill.errors import StopReason
from rowmill.job import Job
from rowmill.ports import Observer, Source
from rowmill.records import GOOD, Outcome, Result
from rowmill.runner.session.loop import in_thread, leave, signals
from rowmill.runner.session.session import found_again
from rowmill.runner.session.start import Start, started
from rowmill.runner.setup.endpoints import Endpoint, redactor, resolve_endpoints
from rowmill.runner.setup.plan import Input, Plan, make_plan, open_input, watch_columns
from rowmill.runner.setup.pricing import priced
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.lock import RunFileLock
from rowmill.store.matching import Matched
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer

Prepared = tuple[Plan, Sequence[Endpoint], Input]
Told = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class MapRules:
    """How to begin: `on_change` as in `run`; finished rows with one of the statuses `retry` are sent again."""

    on_change: str | None = None
    retry: Sequence[str] = ()


class MapRun:
    """One run over rows in memory of what `prepare` makes (see `prepared_map`); source and output are not touched.

    `told` hears of the rows that have ended well before, in order and before anything is sent, then of every row as
    it ends; it is called from other threads.  `stop` may be called from any thread.
    """

    def __init__(
        self,
        prepare: Callable[[], Prepared],
        rules: MapRules,
        observers: Sequence[Observer] = (),
        told: Told | None = None,
    ) -> None:
        self._prepare = prepare
        self._rules = rules
        self._observers = observers
        self._told = told
        self._start: _Mapping | None = None
        self._stopped: StopReason | None = None

    def run(self) -> Result:
        """Blocks until the end."""
        with signals(leave, wanted=True):
            plan, endpoints, opened = self._prepare()
            with RunFileLock(plan.run_file):
                start = self._begin(plan, endpoints, opened)
                return start.go(lambda: start.settle(self._rules), interrupts=True)

    async def arun(self) -> Result:
        """The same on the running loop.  Cancelling drops what is in flight; what was answered is saved."""
        plan, endpoints, opened = await in_thread(self._prepare)
        with RunFileLock(plan.run_file):
            start = await started(lambda: self._begin(plan, endpoints, opened))
            return await start.go_here(lambda: start.settle(self._rules))

    def stop(self, reason: StopReason) -> None:
        """Asks the run to end; a second time drops what is in flight."""
        self._stopped = reason
        if self._start is not None:
            self._start.stop(reason)

    def _begin(self, plan: Plan, endpoints: Sequence[Endpoint], opened: Input) -> _Mapping:
        if plan.run_file.exists():
            connections.check(plan.run_file)
        else:
            connections.create(plan.run_file)
        self._start = start = _Mapping(plan, endpoints, opened, self._observers)
        start.told = self._told
        if self._stopped is not None:
            start.stop(self._stopped)
        return start


class _Mapping(Start):
    writes_output = False
    told: Told | None = None

    def settle(self, rules: MapRules) -> None:
        """What is to be sent again, and under which version."""
        self.settle_versions(rules.on_change, None)
        if rules.retry:
            self.writer.do(lambda c: changes.send_again_by_status(c, rules.retry))
        if self.told is not None:
            self._read_in()
            self._tell_finished(self.told)

    def _make_writer(self) -> Writer:
        return _TellingWriter(self)

    def _read_in(self) -> None:
        """The whole input goes into the run file, so that it is known which rows have ended before."""
        assert self._opened is not None
        rules = SpoolRules(self.plan.names, watch_columns(self.plan), self._moved)
        Spool(self.writer, rules, self._opened.chunks).read_all()
        self._opened = None

    def _moved(self, matched: Matched, changed: Mapping[str, int]) -> None:
        self._notify(found_again(matched))

    def _tell_finished(self, told: Told) -> None:
        with RunFileReader(self.plan.run_file, checked=False) as reader:
            for _, outcomes in reader.outcomes():
                for outcome in outcomes:
                    if outcome is not None and outcome.status in GOOD:
                        told(outcome)


class _TellingWriter(Writer):
    """Tells the start's listener of rows as they end; they are committed within a fifth of a second."""

    def __init__(self, start: _Mapping) -> None:
        super().__init__(start.plan.run_file, redactor(start.endpoints))
        self._start = start

    def save_outcome(self, outcome: Outcome) -> None:
        super().save_outcome(outcome)
        if self._start.told is not None:
            self._start.told(outcome)


def prepared_map(job: Job, source: Source) -> Prepared:
    """A prompt about the rows of `source`.  Raises JobError with all that is wrong."""
    plan = make_plan(job)
    return plan, priced(job, resolve_endpoints(job)), open_input(plan, source)
