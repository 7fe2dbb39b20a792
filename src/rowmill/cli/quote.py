"""`rowmill quote`, and the table that `run --pilot` shows before it asks."""

from __future__ import annotations

import typer

from rowmill.cli.options import Given, Json, Quiet, with_options
from rowmill.cli.run import Source, finish, job_of
from rowmill.cli.terminal import print_json, print_lines


@with_options
def quote(source: Source, options: Given, quiet: Quiet = False, json: Json = False) -> None:
    """Answer a sample, keep its answers, and say what all rows will cost and take."""
    job = job_of(source, options)
    from rowmill import runner
    from rowmill.observers.progress import Progress
    from rowmill.observers.quotes import quote_lines

    found, stopped = runner.quote_job(job, observers=[Progress(quiet=quiet)])
    if found is None:
        assert stopped is not None
        finish(stopped, job.output, quiet, json)
        return
    if json:
        print_json(found.object())
    else:
        print_lines(
            [*quote_lines(found), "The answers of the sample are kept: a run into the same output takes them over."]
        )
    raise typer.Exit(0)
