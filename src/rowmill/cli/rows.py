"""`rowmill rows`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rowmill.cli.options import Output, RunFile, Statuses, statuses_of
from rowmill.cli.terminal import print_json, print_lines

LONGEST = 2_000


def rows(
    output: Output,
    run_file: RunFile = None,
    statuses: Statuses = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most N rows.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row.")] = False,
) -> None:
    """List rows: input, raw reply, answer and every attempt."""
    wanted = statuses_of(statuses, ())
    from rowmill import runner

    for row in runner.rows(output, run_file=run_file, statuses=wanted, limit=limit):
        if json:
            print_json(row)
        else:
            print_lines([*row_lines(row), ""])


def row_lines(row: Mapping[str, Any]) -> list[str]:
    """One row as a block of lines."""
    from rowmill.observers.wording import printable

    lines = [f"row {row.get('row')}: {row.get('status') or 'pending'}"]
    if row.get("error"):
        lines.append(f"  error    {row['error']}")
    lines += [f"  input    {name}: {_shown(value)}" for name, value in _pairs(row.get("input"))]
    lines += [f"  answer   {name}: {_shown(value)}" for name, value in _pairs(row.get("answer"))]
    if row.get("reply") is not None:
        lines.append(f"  reply    {_shown(row['reply'])}")
    attempts = row.get("attempts") or []
    lines += [f"  attempt {number} {_attempt(attempt)}" for number, attempt in enumerate(attempts, 1)]
    return [printable(line).replace("\n", "\n           ") for line in lines]


def _pairs(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [] if value is None else [("", value)]


def _attempt(attempt: Mapping[str, Any]) -> str:
    told = {name: value for name, value in attempt.items() if value is not None and name not in ("index", "number")}
    return ", ".join(f"{name} {_shown(value)}" for name, value in told.items())


def _shown(value: object) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"
