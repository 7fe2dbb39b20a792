"""`rowmill status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from rowmill.cli.options import Json, Output, RunFile
from rowmill.cli.terminal import print_json, print_lines

REFRESH_S = 2.0


def status(
    output: Output,
    run_file: RunFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it every 2 s until the run ends.")] = False,
    json: Json = False,
) -> None:
    """Where a run stands, also while it runs."""
    from rowmill import runner

    follow(lambda: runner.status(output, run_file), print_json if json else _print, watch)


def follow(
    read: Callable[[], Mapping[str, Any]],
    show: Callable[[Mapping[str, Any]], None],
    watch: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows what `read` gives, once, or until it is no longer running."""
    while True:
        standing = read()
        show(standing)
        if not watch or standing.get("state") != "running":
            return
        sleep(REFRESH_S)


def _print(standing: Mapping[str, Any]) -> None:
    print_lines(status_lines(standing))


def status_lines(standing: Mapping[str, Any]) -> list[str]:
    """A run's standing for a reader."""
    from rowmill.observers.summary import counts_words, error_lines
    from rowmill.observers.wording import duration, money, printable, rate

    counts: Mapping[str, int] = standing.get("counts") or {}
    total, done = standing.get("total"), sum(counts.values())
    state = str(standing.get("state"))
    if standing.get("holder"):
        state += f" ({standing['holder']})"
    if standing.get("reason") not in (None, state):
        state += f": {standing['reason']}"
    lines = [
        f"output     {standing.get('output')}",
        f"run file   {standing.get('run_file')}",
        f"state      {state}",
        f"rows       {done:,}" + ("" if total is None else f" of {total:,}") + f": {counts_words(counts)}",
    ]
    if standing.get("purged"):
        lines.append(f"purged     {standing['purged']}: inputs and replies are no longer in the run file")
    if standing.get("pending"):
        lines.append(f"pending    {standing['pending']:,}")
    lines += error_lines((one["error"], one["count"]) for one in standing.get("errors") or ())
    lines.append(f"requests   {standing.get('requests') or 0:,}")
    tokens = f"{standing.get('input_tokens') or 0:,} in, {standing.get('output_tokens') or 0:,} out"
    lines.append(f"tokens     {tokens}; cost {money(standing.get('cost_usd'))}")
    if standing.get("rows_per_s"):
        eta = "" if standing.get("eta_s") is None else f", ETA {duration(standing['eta_s'])}"
        lines.append(f"speed      {rate(standing['rows_per_s'])} rows/s{eta}")
    lines += [line for lane in standing.get("lanes") or () for line in _lane_lines(lane)]
    if standing.get("seconds") is not None:
        lines.append(f"time       {duration(standing['seconds'])}")
    if standing.get("updated"):
        lines.append(f"updated    {_moment(standing['updated'])}")
    return [printable(line) for line in lines]


def _lane_lines(lane: Mapping[str, Any]) -> list[str]:
    """A lane as the progress block shows it; none of a run file whose lanes have other figures."""
    from rowmill.observers.wording import lane_lines
    from rowmill.records import LaneFigures

    try:
        first, *more = lane_lines(LaneFigures(**lane), with_tokens=True)
    except TypeError:
        return []
    return [f"endpoint   {first}", *(f"         {line}" for line in more)]


def _moment(value: object) -> str:
    if isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value)
