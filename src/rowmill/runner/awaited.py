"""Runs a job on the caller's loop: the engine there, everything that touches files in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rowmill.job import Job
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.files import ensure_run_file, set_aside
from rowmill.runner.lanes import Endpoint, resolve_endpoints
from rowmill.runner.loop import in_thread
from rowmill.runner.plan import Input, Plan, make_plan
from rowmill.runner.pricing import priced
from rowmill.runner.running import open_or_stored
from rowmill.runner.start import Start
from rowmill.store.lock import RunFileLock

S = TypeVar("S", bound=Start)


async def arun(
    job: Job, *, on_change: str | None = None, fresh: bool = False, observers: Sequence[Observer] = ()
) -> Result:
    """As `run`, awaited.  Cancelling drops what is in flight; what was answered is saved."""

    def prepare() -> tuple[Plan, list[Endpoint], Input | None]:
        plan = make_plan(job)
        return plan, priced(job, resolve_endpoints(job)), open_or_stored(plan, fresh)

    plan, endpoints, opened = await in_thread(prepare)

    def start() -> Start:
        if fresh:
            set_aside(plan)
        ensure_run_file(plan)
        return Start(plan, endpoints, opened, observers)

    return await locked(plan, start, lambda begun: begun.begin(on_change, None))


async def locked(plan: Plan, start: Callable[[], S], prepare: Callable[[S], None]) -> Result:
    """Starts on a run file and holds its lock until the end."""
    lock = RunFileLock(plan.run_file)
    lock.acquire()
    made: list[S] = []
    try:
        try:
            await in_thread(lambda: made.append(start()))
        except BaseException:
            for begun in made:  # cancelled just then
                begun.writer.close(None)
            raise
        return await made[0].go_here(lambda: prepare(made[0]))
    finally:
        lock.release()
