"""Takes up rows that ended badly: sends them again under the job that the run file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowmill.job import apply_overrides
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.output.destinations import check_destination
from rowmill.runner.output.exporting import run_file_of, sendable_job
from rowmill.runner.output.untouched import keep_edits
from rowmill.runner.session.loop import leave, signals
from rowmill.runner.session.start import Start
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.plan import make_plan
from rowmill.runner.setup.pricing import priced
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader


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
        with RunFileReader(path) as reader:
            job = apply_overrides(sendable_job(reader, output), overrides or {})
        plan = make_plan(job, run_file=str(path))
        endpoints = priced(job, resolve_endpoints(job))
        with RunFileLock(path):
            if plan.target is not None:
                check_destination(plan.target, path)
            keep_edits(plan.job, path)
            start = Start(plan, endpoints, None, observers)
            return start.go(lambda: start.requeue(statuses), interrupts)
