"""`rowmill retry`."""

from __future__ import annotations

from rowmill.cli.options import Given, Json, Output, Quiet, RunFile, Statuses, statuses_of, with_options
from rowmill.cli.run import finish


@with_options
def retry(
    output: Output,
    options: Given,
    statuses: Statuses = None,
    run_file: RunFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Take up failed rows, or those of --status, once more."""
    from rowmill import runner
    from rowmill.observers.progress import Progress

    result = runner.retry(
        output,
        run_file=run_file,
        statuses=statuses_of(statuses, ("failed",)),
        overrides=options.values,
        observers=[Progress(quiet=quiet)],
    )
    finish(result, output, quiet, json)
