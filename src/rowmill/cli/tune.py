"""`rowmill tune`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rowmill.cli.options import Given, Json, OnChange, Quiet, with_options
from rowmill.cli.run import Source, check_on_change, is_job_file, job_of
from rowmill.cli.terminal import print_json, say
from rowmill.core.measures.tuning_limits import MOST_IN_FLIGHT, STEP_S
from rowmill.errors import JobError

if TYPE_CHECKING:
    from rowmill.core.measures.tuning import Advice
    from rowmill.runner import TuneReport


@with_options
def tune(
    source: Source,
    options: Given,
    step_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows a step (3 for each in flight, at least 30).", show_default=False),
    ] = None,
    step_s: Annotated[float, typer.Option(metavar="S", help="Seconds a step at most.")] = STEP_S,
    most: Annotated[int, typer.Option(metavar="N", help="The most in flight to try.")] = MOST_IN_FLIGHT,
    write: Annotated[bool, typer.Option("--write", help="Write what is recommended into the job file.")] = False,
    on_change: OnChange = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure several concurrencies on fresh rows and recommend; the answers are kept."""
    check_on_change(on_change)
    _check(source, options, write)
    job = job_of(source, options)
    from rowmill import runner
    from rowmill.observers.progress import Progress
    from rowmill.observers.tuning import report_object, step_line

    report = runner.tune(
        job,
        runner.TuneRules(step_rows, step_s, most),
        on_change=on_change,
        stepped=lambda step: None if quiet else say(step_line(step)),
        observers=[Progress(quiet=quiet)],
    )
    if json:
        print_json(report_object(report.steps, report.advice, report.message, report.run_file))
    else:
        _print(report)
    if write and report.advice is not None:
        _write(source[0], report.advice)
    if not quiet:
        say(*_closing(report, source[0], write))
    raise typer.Exit(report.exit_code)


def _check(source: list[str], options: Given, write: bool) -> None:
    faults = []
    if options["in_flight"] is not None:
        faults.append("--in-flight: tune sets it itself; --most says how far it may go")
    if write and not is_job_file(source):
        faults.append("--write: there is no job file to write into; SOURCE must be one (.yaml)")
    if write and (options["model"] or options["url"]):
        faults.append("--write: the job file is about its own endpoint; leave out -m and --url")
    if faults:
        raise JobError(*faults)


def _print(report: TuneReport) -> None:
    from rowmill.observers.progress import console_on
    from rowmill.observers.tuning import plot_lines, table

    if report.steps:
        console = console_on(sys.stdout)
        console.print(table(report.steps, report.advice))
        for line in plot_lines(report.steps, report.advice):
            console.print(line, no_wrap=True, overflow="crop")


def _write(path: str, advice: Advice) -> None:
    from rowmill.job import write_values

    write_values(
        path,
        {
            ("endpoints", 0, "in_flight"): advice.in_flight,
            ("timeout_s",): advice.timeout_s,
            ("retry", "attempts"): advice.attempts,
        },
    )


def _closing(report: TuneReport, source: str, write: bool) -> list[str]:
    from rowmill.observers.tuning import advice_words
    from rowmill.observers.wording import printable

    lines = [f"Ended: {report.message or 'interrupted'}."]
    if report.advice is None:
        lines.append("Nothing can be recommended from this.")
    else:
        where = f"written into {source}" if write else "--write puts it into a job file"
        lines.append(f"Recommended: {advice_words(report.advice)} ({where}).")
    lines.append(f"The {report.rows_kept:,} answers are in {report.run_file}; `rowmill run` does not send them again.")
    return [printable(line) for line in lines]
