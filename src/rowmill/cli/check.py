"""`rowmill check`."""

from __future__ import annotations

from rowmill.cli.options import Given, with_options
from rowmill.cli.run import Source, job_of
from rowmill.cli.terminal import print_lines


@with_options
def check(source: Source, options: Given) -> None:
    """Validate a job and show its first request; nothing is sent."""
    job = job_of(source, options)
    from rowmill import runner
    from rowmill.observers.wording import printable

    report = runner.check(job)
    lines = [
        f"columns     {', '.join(report.columns) if report.columns else 'none'}",
        f"rows seen   {report.rows_seen:,}",
        *(f"endpoint    {endpoint}" for endpoint in report.endpoints),
        f"output      {job.output}",
        *(f"note        {note}" for note in report.notes),
    ]
    first = ["first request:", *report.first_request.splitlines()] if report.first_request else []
    print_lines([printable(line) for line in lines + first] + ["The job is valid; nothing was sent."])
