"""Runs a job from its checks to its output, or goes on with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rowmill.core.pricing.quote import Quote
from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.commands.forecast import Agreement, say_cost
from rowmill.runner.commands.quote import Pilot, has_begun
from rowmill.runner.output.untouched import keep_edits
from rowmill.runner.session.loop import leave, signals
from rowmill.runner.session.run_files import ensure_run_file, set_aside
from rowmill.runner.session.start import Start
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.plan import Input, Plan, make_plan, open_input
from rowmill.runner.setup.pricing import priced
from rowmill.store.connection import is_there
from rowmill.store.lock import RunFileLock


def run(
    job: Job,
    *,
    on_change: str | None = None,
    fresh: bool = False,
    confirm: Callable[[str], bool] | None = None,
    approve: Callable[[Quote], bool] | None = None,
    agreement: Agreement | None = None,
    observers: Sequence[Observer] = (),
    interrupts: bool = True,
) -> Result:
    """Runs a job or goes on with it; blocks until it ends.

    `on_change` is keep or rerun; `confirm` is asked where it is None.  `fresh` renames run file and output to *.old.
    `approve` is shown what a job's pilot has found and says whether to go on; `agreement` says above which cost one is
    asked before anything is sent.  Raises JobError before anything is
    sent; every other end is in the result.
    """
    must_be_approved(job, approve)
    with signals(leave, wanted=interrupts):
        plan = make_plan(job)
        endpoints = priced(job, resolve_endpoints(job))
        opened = open_or_stored(plan, fresh)
        with RunFileLock(plan.run_file):
            if fresh:
                set_aside(plan)
            ensure_run_file(plan)
            keep_edits(plan.job, plan.run_file)
            say_cost(plan, endpoints, opened, observers, agreement)
            if job.pilot is not None and approve is not None and not has_begun(plan):
                pilot = Pilot(plan, endpoints, observers)
                stopped = pilot.go(job.pilot, lambda start: start.settle_versions(on_change, confirm), interrupts)
                if stopped is not None:
                    return stopped
                if not approve(pilot.quote()):
                    return pilot.declined()
            start = Start(plan, endpoints, opened, observers)
            return start.go(lambda: start.begin(on_change, confirm), interrupts)


def must_be_approved(job: Job, approve: Callable[[Quote], bool] | None) -> None:
    """Refuses a pilot that nobody will look at.  Raises JobError."""
    if job.pilot is not None and approve is None:
        raise JobError("--pilot asks before it goes on, and there is nobody to ask: add --yes, or --budget-usd USD")


def open_or_stored(plan: Plan, fresh: bool) -> Input | None:
    """Opens the input; None where standard input is a terminal and what was read from it before is to be used."""
    if plan.job.source == "-" and (sys.stdin is None or sys.stdin.isatty()):
        if is_there(plan.run_file) and not fresh:
            return None
        raise JobError("nothing is piped into standard input; use for example: cat rows.jsonl | rowmill run - ...")
    return open_input(plan)
