"""`rowmill run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rowmill.cli.options import ConfirmUsd, Given, Json, OnChange, Quiet, help_of, with_options
from rowmill.cli.streams import silence_stdout
from rowmill.cli.terminal import can_ask, confirm, print_json, say
from rowmill.errors import JobError, OutputError
from rowmill.job.option_table import BY_NAME, check_choice

if TYPE_CHECKING:
    from rowmill.core.pricing.quote import Quote
    from rowmill.job import Job
    from rowmill.records import Result
    from rowmill.runner import Agreement

Source = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...|JOB.yaml", help="Files, a glob, - for JSONL on standard input, or a job file."),
]


@with_options
def run(
    source: Source,
    options: Given,
    on_change: OnChange = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Ask nothing before the run, nor after its pilot.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help=help_of(BY_NAME["fresh"]))] = False,
    confirm_usd: ConfirmUsd = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Ask a model about every row; the same command again resumes."""
    check_on_change(on_change)
    job = job_of(source, options)
    from rowmill import runner
    from rowmill.observers.progress import Progress

    result = runner.run(
        job,
        on_change=on_change,
        fresh=fresh,
        confirm=confirm if can_ask() and source != ["-"] else None,
        approve=_approve(yes, may_spend=job.budget_usd is not None),
        agreement=_agreement(yes, confirm_usd),
        observers=[Progress(quiet=quiet)],
    )
    finish(result, job.output, quiet, json)


def _approve(yes: bool, *, may_spend: bool) -> Callable[[Quote], bool] | None:
    """Shows a quote and asks; None where somebody would have to be asked and nobody is there."""
    asks = can_ask() and not yes
    if not asks and not yes and not may_spend:
        return None

    def approve(quote: Quote) -> bool:
        from rowmill.observers.quotes import quote_lines

        say(*quote_lines(quote))
        return confirm("Go on with the rest?") if asks else True

    return approve


def _agreement(yes: bool, usd: float | None) -> Agreement | None:
    """Above which cost the user is asked; None where that is not wanted, or nobody is there."""
    from rowmill.runner import Agreement

    option = BY_NAME["confirm_usd"]
    if usd is not None and not option.range[0] <= usd <= option.range[1]:
        raise JobError(f"--confirm-usd must be {option.range[0]:g} to {option.range[1]:,.0f}, not {usd:g}")
    if yes or not can_ask():
        return None
    return Agreement(float(str(option.default)) if usd is None else usd, confirm)


def check_on_change(on_change: str | None) -> None:
    """Raises JobError for anything but keep and rerun."""
    check_choice("on_change", on_change, "--on-change")


def is_job_file(source: list[str]) -> bool:
    """Whether SOURCE names a job file, by its ending."""
    return len(source) == 1 and source[0].lower().endswith((".yaml", ".yml"))


def job_of(source: list[str], options: Given) -> Job:
    """The job in the file that `source` names, or the job for that source."""
    from rowmill.job import job_from_options, load_job

    if is_job_file(source):
        return load_job(source[0], options.values)
    return job_from_options({"source": source[0] if len(source) == 1 else source, **options.values})


def finish(result: Result, output: str, quiet: bool, json: bool) -> None:
    """Prints the summary and leaves with the result's exit code."""
    from rowmill.observers.summary import summary_lines, summary_object

    if not quiet:
        say(*summary_lines(result, output))
    elif result.message:
        say(f"rowmill: {result.message}")
    if json:
        try:
            print_json(summary_object(result))
        except BrokenPipeError:
            silence_stdout()
        except OutputError as error:  # how the run ended counts, not who could be told
            say(f"rowmill: error: {error}")
    raise typer.Exit(result.exit_code)
