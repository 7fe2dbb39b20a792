"""`rowmill export`."""

from __future__ import annotations

from typing import Annotated

import typer

from rowmill.cli.options import AnswerPrefix, EscapeFormulas, Format, MetaPrefix, Output, Quiet, RunFile
from rowmill.cli.terminal import say


def export(
    output: Output,
    target: Annotated[str, typer.Option("-o", "--output", metavar="OTHER", help="The file to write.")],
    format: Format = None,
    run_file: RunFile = None,
    answer_prefix: AnswerPrefix = None,
    meta_prefix: MetaPrefix = None,
    escape_formulas: EscapeFormulas = None,
    quiet: Quiet = False,
) -> None:
    """Write finished rows in any format, also while the run goes on."""
    from rowmill import runner

    written = runner.export(
        output,
        run_file=run_file,
        target=target,
        format=format,
        escape_formulas=bool(escape_formulas),
        answer_prefix=answer_prefix,
        meta_prefix=meta_prefix,
    )
    if not quiet:
        say(f"{written:,} rows written to {target}")
