"""The final summary of a run, as text and as the `--json` object; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rowmill.core.measures.lane_object import lane_object
from rowmill.core.names.databases import is_database
from rowmill.core.names.files import default_run_file
from rowmill.core.shortening import shortened
from rowmill.errors import StopReason
from rowmill.observers.wording import causes, cost_words, duration, printable, rate
from rowmill.records import GOOD, Figures, Result, Status

ERROR_CHARS = 160


def summary_object(result: Result) -> dict[str, Any]:
    """The object that `--json` prints."""
    figures = result.figures
    return {
        "rows": figures.done if figures.total is None else figures.total,
        "counts": {str(status): number for status, number in figures.counts.items()},
        "requests": figures.requests,
        "seconds": round(figures.elapsed_s, 3),
        "rows_per_s": round(figures.rows_per_s, 3),
        "input_tokens": figures.input_tokens,
        "output_tokens": figures.output_tokens,
        "cost_usd": figures.cost_usd,
        "latency_s": {name: figures.latency_s.get(name) for name in ("p50", "p95", "p99")},
        "retries": dict(figures.retries),
        "throttles": dict(figures.throttles),
        "errors": [{"error": error, "count": count} for error, count in result.errors],
        "accuracy": None if result.accuracy is None else dict(result.accuracy),
        "output": result.output,
        "failures": result.failures,
        "run_file": result.run_file,
        "exit_code": result.exit_code,
        "lanes": [lane_object(lane) for lane in figures.lanes],
    }


def summary_lines(result: Result, output: str) -> list[str]:
    """The summary for a reader; `output` is what the user calls the output, for the commands to run next."""
    lines = [_headline(result), *_figures(result.figures), *error_lines(result.errors)]
    lines.extend(result.accuracy_lines)
    if result.output:
        lines.append(f"output     {result.output}")
    if is_database(output):
        lines.append(f"run file   {result.run_file}")
    if result.failures:
        lines.append(f"failures   {result.failures}")
    return [printable(line) for line in lines + _next(result, output)]


def _headline(result: Result) -> str:
    figures = result.figures
    if result.nothing_to_do:
        return f"Nothing to do: all {figures.done:,} rows were finished before; nothing was sent."
    if result.reason is StopReason.FINISHED:
        speed = f"{duration(figures.elapsed_s)}, {rate(figures.rows_per_s)} rows/s"
        before = figures.done - figures.session_rows
        if before > 0:
            return f"Finished: {figures.done:,} rows, {figures.session_rows:,} of them now in {speed}."
        return f"Finished: {figures.done:,} rows in {speed}."
    why = result.message or str(result.reason).replace("_", " ")
    done = f"{figures.done:,}" + ("" if figures.total is None else f" of {figures.total:,}")
    return f"Stopped after {done} rows and {duration(figures.elapsed_s)}: {why}"


def _figures(figures: Figures) -> list[str]:
    lines = []
    if figures.counts:
        order = {status: position for position, status in enumerate(Status)}
        counts = sorted(figures.counts.items(), key=lambda count: order.get(Status(count[0]), 0))
        lines.append("rows       " + ", ".join(f"{number:,} {status}" for status, number in counts if number))
    lines.append(f"requests   {figures.requests:,}")
    tokens = f"tokens     {figures.input_tokens:,} in, {figures.output_tokens:,} out"
    lines.append(f"{tokens}; cost {cost_words(figures)}")
    latencies = [
        f"{name} {duration(value)}"
        for name in ("p50", "p95", "p99")
        if (value := figures.latency_s.get(name)) is not None
    ]
    if latencies:
        lines.append("latency    " + ", ".join(latencies))
    if causes(figures.retries):
        lines.append("retries    " + causes(figures.retries))
    if causes(figures.throttles):
        lines.append("throttles  " + causes(figures.throttles))
    return lines


def error_lines(errors: Iterable[tuple[str, int]]) -> list[str]:
    """The most frequent errors, each with how many rows ended with it."""
    words = [f"{count:,} x {shortened(' '.join(error.split()), ERROR_CHARS)}" for error, count in errors]
    return [f"{'errors' if not at else '':10} {line}" for at, line in enumerate(words)]


def _next(result: Result, output: str) -> list[str]:
    command = where(output, result.run_file)
    if result.reason is not StopReason.FINISHED:
        # `resume` and `retry` know the run file alone.
        again = "the job's first" if result.reason is StopReason.SOURCE else "the same"
        return [
            f"To go on, run {again} command again: finished rows are not sent again.",
            f"To export what there is: rowmill export {command} -o PARTIAL.jsonl",
        ]
    bad = {Status(name): number for name, number in result.figures.counts.items() if number}
    bad = {status: number for status, number in bad.items() if status not in GOOD}
    if not bad:
        return []
    statuses = ",".join(bad)
    retry = f"rowmill retry {command}" + ("" if list(bad) == [Status.FAILED] else f" --status {statuses}")
    return [f"To see why:      rowmill rows {command} --status {statuses}", f"To try again:    {retry}"]


def where(output: str, run_file: str) -> str:
    """The arguments that name a run on the command line."""
    if is_database(output) or output == run_file:
        return shlex.quote(run_file)
    named = shlex.quote(output)
    return named if run_file == default_run_file(output) else f"{named} --run-file {shlex.quote(run_file)}"


def counts_words(counts: Mapping[str, int]) -> str:
    """`980 ok, 20 failed`; `none` for no rows."""
    return ", ".join(f"{number:,} {status}" for status, number in counts.items() if number) or "none"
