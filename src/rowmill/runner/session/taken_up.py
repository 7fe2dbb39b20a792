"""A run file that is taken up again, without its source: planned by the job that it holds, locked and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rowmill.job import Job
from rowmill.runner.output.destinations import check_destination
from rowmill.runner.output.untouched import keep_edits
from rowmill.runner.setup.endpoints import Endpoint, resolve_endpoints
from rowmill.runner.setup.plan import Plan, make_plan
from rowmill.runner.setup.pricing import priced
from rowmill.store.lock import RunFileLock


@contextmanager
def taken_up(job: Job, path: Path) -> Iterator[tuple[Plan, Sequence[Endpoint]]]:
    """Holds the run file's lock for as long as the context lasts; raises before anything is sent."""
    plan = make_plan(job, run_file=str(path))
    endpoints = priced(job, resolve_endpoints(job))
    with RunFileLock(path):
        if plan.target is not None:
            check_destination(plan.target, path)
        keep_edits(plan.job, path)
        yield plan, endpoints
