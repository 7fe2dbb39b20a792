"""Runs a job on the caller's loop: the engine there, everything that touches files in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowmill.core.pricing.quote import Quote
from rowmill.job import Job
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.commands.forecast import say_cost
from rowmill.runner.commands.quote import Pilot, has_begun
from rowmill.runner.commands.run import must_be_approved, open_or_stored
from rowmill.runner.output.untouched import keep_edits
from rowmill.runner.session.loop import in_thread
from rowmill.runner.session.run_files import ensure_run_file, set_aside
from rowmill.runner.session.start import Start, started
from rowmill.runner.setup.endpoints import Endpoint, resolve_endpoints
from rowmill.runner.setup.plan import Input, Plan, make_plan
from rowmill.runner.setup.pricing import priced
from rowmill.store.lock import RunFileLock


async def arun(
    job: Job,
    *,
    on_change: str | None = None,
    fresh: bool = False,
    approve: Callable[[Quote], bool] | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """As `run`, awaited.  Cancelling drops what is in flight; what was answered is saved."""
    must_be_approved(job, approve)

    def prepare() -> tuple[Plan, list[Endpoint], Input | None]:
        plan = make_plan(job)
        return plan, priced(job, resolve_endpoints(job)), open_or_stored(plan, fresh)

    def settle() -> bool:
        if fresh:
            set_aside(plan)
        ensure_run_file(plan)
        keep_edits(plan.job, plan.run_file)
        say_cost(plan, endpoints, opened, observers, None)
        return job.pilot is not None and not has_begun(plan)

    plan, endpoints, opened = await in_thread(prepare)
    with RunFileLock(plan.run_file):
        if await in_thread(settle) and job.pilot is not None and approve is not None:
            pilot = Pilot(plan, endpoints, observers)
            stopped = await pilot.go_here(job.pilot, lambda start: start.settle_versions(on_change, None))
            if stopped is not None:
                return stopped
            if not approve(await in_thread(pilot.quote)):
                return pilot.declined()
        start = await started(lambda: Start(plan, endpoints, opened, observers))
        return await start.go_here(lambda: start.begin(on_change, None))
