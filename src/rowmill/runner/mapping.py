"""Runs a job over rows in memory; the answers stay in the run file, from which the caller reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rowmill.job import Job
from rowmill.ports import Observer, Source
from rowmill.records import Result
from rowmill.runner.awaited import locked
from rowmill.runner.lanes import Endpoint, resolve_endpoints
from rowmill.runner.loop import in_thread, leave, signals
from rowmill.runner.plan import Input, Plan, make_plan, open_input
from rowmill.runner.pricing import priced
from rowmill.runner.start import Start
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.lock import RunFileLock


@dataclass(frozen=True, slots=True)
class MapRules:
    """How to begin: `on_change` as in `run`; finished rows with one of the statuses `retry` are sent again."""

    on_change: str | None = None
    retry: Sequence[str] = ()


class _Mapping(Start):
    writes_output = False

    def settle(self, rules: MapRules) -> None:
        """What is to be sent again, and under which version."""
        self.settle_versions(rules.on_change, None)
        if rules.retry:
            self.writer.do(lambda c: changes.send_again_by_status(c, rules.retry))


Prepared = tuple[Plan, Sequence[Endpoint], Input]


def map_rows(prepare: Callable[[], Prepared], rules: MapRules, observers: Sequence[Observer] = ()) -> Result:
    """Runs what `prepare` makes (see `prepared_map`) and blocks until the end; source and output are not touched."""
    with signals(leave, wanted=True):
        plan, endpoints, opened = prepare()
        lock = RunFileLock(plan.run_file)
        lock.acquire()
        try:
            start = _start(plan, endpoints, opened, observers)
            return start.go(lambda: start.settle(rules), interrupts=True)
        finally:
            lock.release()


async def amap_rows(prepare: Callable[[], Prepared], rules: MapRules, observers: Sequence[Observer] = ()) -> Result:
    """As `map_rows`, on the running loop."""
    plan, endpoints, opened = await in_thread(prepare)
    return await locked(plan, lambda: _start(plan, endpoints, opened, observers), lambda begun: begun.settle(rules))


def prepared_map(job: Job, source: Source) -> Prepared:
    """A prompt about the rows of `source`.  Raises JobError with all that is wrong."""
    plan = make_plan(job)
    return plan, priced(job, resolve_endpoints(job)), open_input(plan, source)


def _start(plan: Plan, endpoints: Sequence[Endpoint], opened: Input, observers: Sequence[Observer]) -> _Mapping:
    if plan.run_file.exists():
        connections.check(plan.run_file)
    else:
        connections.create(plan.run_file)
    return _Mapping(plan, endpoints, opened, observers)
