"""Takes up rows that ended badly: sends them again under the job that the run file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowmill.job import apply_overrides
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.output.exporting import run_file_of, sendable_job
from rowmill.runner.session.loop import leave, signals
from rowmill.runner.session.start import Start
from rowmill.runner.session.taken_up import taken_up
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
        with taken_up(job, path) as (plan, endpoints):
            start = Start(plan, endpoints, None, observers)
            return start.go(lambda: start.requeue(statuses), interrupts)
