"""The command line: arguments -> a job -> the runner, a file per command.  No logic lives here.

Heavy things are imported inside the commands, so that `rowmill --help` is quick.
"""

from __future__ import annotations

import atexit
import functools
import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from rowmill.cli import check, demo, export, purge, quote, resume, retry, rows, run, simulate, status, tune
from rowmill.cli.binding import bind
from rowmill.cli.streams import mend_streams
from rowmill.cli.terminal import guarded, say
from rowmill.core.measures.gc_threshold import rare_collections
from rowmill.errors import ExitCode

app = typer.Typer(
    name="rowmill",
    help="Runs an LLM over every row of a data set: fast, resumable, nothing lost.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("check")(check.check)
app.command("quote")(quote.quote)
app.command("status")(status.status)
app.command("retry")(retry.retry)
app.command("resume")(resume.resume)
app.command("export")(export.export)
app.command("rows")(rows.rows)
app.command("purge")(purge.purge)
app.command("tune")(tune.tune)
app.command("simulate", context_settings=simulate.PASSED_ON)(simulate.simulate)
app.command("demo")(demo.demo)

# Reading the functions' signatures takes longer than many a command, and some processes call several.
_command_of = functools.cache(typer.main.get_command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"rowmill {version('rowmill')}")
        except PackageNotFoundError:
            typer.echo("rowmill (not installed)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with an exit code of `ExitCode`."""
    mend_streams()
    # Else a seventh of a short command is the search for cycles, while modules are loaded and again at its very end.
    atexit.register(gc.freeze)
    with rare_collections():
        code = guarded(lambda: _call(list(sys.argv[1:] if arguments is None else arguments)))
    sys.exit(code)


def _call(arguments: list[str]) -> int:
    # Not `app()`: it would turn a broken pipe into exit code 1 before we see it.
    command = _command_of(app)
    arguments, endpoints = bind(arguments)
    try:
        with command.make_context("rowmill", arguments, obj=endpoints) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return ExitCode.NOTHING_SENT
    except TyperException as error:
        say(*_usage_words(error))
        return ExitCode.NOTHING_SENT
    return 0


def _usage_words(error: TyperException) -> list[str]:
    words = error.format_message()
    if words.startswith("Usage:"):  # called without arguments: the words are the help
        return [words]
    context = getattr(error, "ctx", None)
    return [f"rowmill: error: {words}", f"Try '{context.command_path if context else 'rowmill'} --help'."]
