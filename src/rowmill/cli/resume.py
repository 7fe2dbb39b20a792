"""`rowmill resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from rowmill.cli.options import Json, Output, Quiet, RunFile
from rowmill.cli.run import finish
from rowmill.cli.terminal import can_ask, confirm


def resume(
    output: Output,
    run_file: RunFile = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Send the pending rows without asking.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on with what the run file holds, without job file or source."""
    from rowmill import runner
    from rowmill.observers.progress import Progress

    result = runner.resume(
        output,
        run_file=run_file,
        confirm=confirm if can_ask() and not yes else None,
        observers=[Progress(quiet=quiet)],
    )
    finish(result, output, quiet, json)
