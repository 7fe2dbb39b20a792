"""`rowmill demo`: the main job on bundled rows with the embedded model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rowmill.cli.options import Quiet
from rowmill.cli.terminal import say
from rowmill.core.shortening import shortened
from rowmill.errors import JobError

if TYPE_CHECKING:
    from rich.table import Table

FOLDER = "rowmill-demo"
FILES = ("reviews.csv", "reviews.yaml")
SHOWN_ROWS = 12
TEXT_CHARS = 30


def demo(quiet: Quiet = False) -> None:
    """Label bundled reviews with the embedded model."""
    from rowmill import runner
    from rowmill.job import load_job
    from rowmill.observers.progress import Progress, console_on
    from rowmill.observers.summary import summary_lines

    job_file = _lay_out(bundled())
    job = load_job(job_file, {})
    if not quiet:
        say(f"$ rowmill run {job_file}", "A toy model labels short reviews; what is shown is the engine.", "")
    result = runner.run(job, on_change=None, fresh=False, confirm=None, observers=[Progress(quiet=quiet)])
    if not quiet:
        say(*summary_lines(result, job.output), "")
    if result.output and os.path.exists(result.output):
        import sys

        records = _read(result.output)
        console_on(sys.stdout).print(_table(records[:SHOWN_ROWS]))
        if not quiet:
            say(*_closing(records, job_file, job.output))
    raise typer.Exit(result.exit_code)


def bundled() -> Path:
    """The folder of the bundled files, in an installed package or in a checkout."""
    import rowmill

    package = Path(rowmill.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if all((folder / name).is_file() for name in FILES):
            return folder
    raise JobError("the bundled reviews are not there; install Rowmill again")


def _lay_out(folder: Path) -> str:
    """Copies the bundled files that the demo's folder lacks; returns the job file's path."""
    try:
        os.makedirs(FOLDER, exist_ok=True)
        for name in FILES:
            if not os.path.exists(os.path.join(FOLDER, name)):
                shutil.copyfile(folder / name, os.path.join(FOLDER, name))
    except OSError as error:
        raise JobError(f"the folder {FOLDER} cannot be written here: {error.strerror}") from None
    return os.path.join(FOLDER, FILES[1])


def _read(output: str) -> list[Mapping[str, Any]]:
    with open(output, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _table(records: Sequence[Mapping[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rowmill.observers.wording import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("row", "text", "label", "sentiment", "status", "latency"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for record in records:
        latency = record.get("_latency_s")
        cells = [record.get("_row"), record.get("text"), record.get("label"), record.get("sentiment")]
        cells += [record.get("_status"), "" if latency is None else f"{latency:.2f} s"]
        table.add_row(
            *(
                Text(shortened(printable(" ".join(str(cell).split())), TEXT_CHARS, "\N{HORIZONTAL ELLIPSIS}"))
                for cell in cells
            )
        )
    return table


def _closing(records: Sequence[Mapping[str, Any]], job_file: str, output: str) -> list[str]:
    lines = []
    for lang, name in (("en", "English"), ("zh", "Chinese")):
        rows = [record for record in records if record.get("lang") == lang]
        if rows:
            right = sum(record.get("sentiment") == record.get("label") for record in rows)
            lines.append(f"{name}: {right} of {len(rows)} labels right.")
    return [
        *lines,
        "It is a toy model of 135 million parameters, so take its labels lightly.",
        "",
        f"The output:          {output}",
        f"To resume a run:     rowmill run {job_file} (the same command again sends only what is missing)",
        f"A real endpoint:     rowmill run {job_file} -m openai/gpt-4o-mini -o real.jsonl",
        f"A server of yours:   rowmill run {job_file} -m NAME --url http://localhost:8000/v1 -o own.jsonl",
    ]
