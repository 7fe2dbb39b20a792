"""`rowmill purge`."""

from __future__ import annotations

from typing import Annotated

import typer

from rowmill.cli.options import Output, Quiet, RunFile
from rowmill.cli.terminal import can_ask, confirm, say


def purge(
    output: Output,
    run_file: RunFile = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.")] = False,
    quiet: Quiet = False,
) -> None:
    """Take inputs and raw replies out of the run file; keep statuses and answers."""
    from rowmill import runner
    from rowmill.errors import JobError

    if not yes and not can_ask():
        raise JobError("purge cannot be undone, and there is nobody to ask: add -y/--yes")
    rows = runner.purge(output, run_file=run_file, confirm=None if yes else confirm)
    if not quiet:
        say(
            f"inputs and replies of {rows:,} rows are no longer in the run file; answers and statuses are",
            "Output and file of failures are as they were: the latter holds inputs and excerpts of replies.",
        )
