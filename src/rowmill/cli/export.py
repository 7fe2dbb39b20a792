"""`rowmill export`."""

from __future__ import annotations

from typing import Annotated

import typer

from rowmill.cli.options import Given, Output, Quiet, with_options
from rowmill.cli.terminal import say


@with_options
def export(
    output: Output,
    target: Annotated[str, typer.Option("-o", "--output", metavar="OTHER", help="The file to write, or a database.")],
    options: Given,
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer", metavar="SCHEMA", help="Read the stored replies by another schema.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write finished rows in any format, also while the run goes on."""
    from rowmill import runner
    from rowmill.core.names.databases import shown

    rules = runner.ExportRules(
        format=options["format"],
        table=options["table"],
        mode=options["mode"],
        id=options["id"],
        split_rows=options["split_rows"],
        escape_formulas=bool(options["escape_formulas"]),
        answer_prefix=options["answer_prefix"],
        meta_prefix=options["meta_prefix"],
        answer=answer,
    )
    written = runner.export(output, target=target, run_file=options["run_file"], rules=rules)
    if not quiet:
        say(f"{written:,} rows written to {shown(target, options['table'])}")
        when = runner.purged(output, options["run_file"])
        if when is not None:
            say(f"without the input's columns: the run file was purged on {when}")
