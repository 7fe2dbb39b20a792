"""What can be seen of a run from its run file, also while it runs: status and single rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rowmill.runner.output.exporting import run_file_of, stored_job
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader
from rowmill.store.totals import Session


def status(output: str, run_file: str | None = None) -> Mapping[str, Any]:
    """Where a run stands, JSON-ready.

    `state` is running, finished, stopped (by itself), interrupted (by a signal) or killed.
    """
    path = run_file_of(output, run_file)
    with RunFileReader(path) as reader, reader.frozen():
        totals = reader.totals()
        sessions = reader.sessions()
        stored_rows = reader.row_total()
        complete, errors = reader.is_complete(), reader.errors()
        purged = reader.metadata("purged")
        target = stored_job(reader).target if reader.metadata("job") else None
    holder = RunFileLock(path).holder()
    last = sessions[-1] if sessions else None
    shown = dict(last.snapshot) if last is not None else {}
    done = sum(totals.counts.values())
    total = stored_rows if complete else shown.get("total")
    running = holder is not None
    return {
        "output": output.removesuffix(".rowmill") if target is None else str(target),
        "run_file": str(path),
        "state": _state(last, running, complete and done == stored_rows),
        "holder": holder,
        "total": total,
        "purged": purged,
        "counts": dict(totals.counts),
        "pending": None if total is None else total - done,
        "requests": totals.requests,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cost_usd": totals.cost_usd,
        "errors": [{"error": error, "count": count} for error, count in errors],
        "started": last.started if last else None,
        "updated": last.updated if last else None,
        "seconds": _seconds(last, running),
        "rows_per_s": shown.get("rows_per_s"),
        "eta_s": shown.get("eta_s") if running else None,
        "lanes": shown.get("lanes", []),
        "reason": last.reason if last else None,
    }


def _seconds(last: Session | None, running: bool) -> float | None:
    if last is None:
        return None
    return (time.time() if running else last.ended or last.updated) - last.started


def _state(last: Session | None, running: bool, finished: bool) -> str:
    if running:
        return "running"
    if finished:
        return "finished"
    if last is None or last.ended is None:
        return "killed"
    return "interrupted" if last.reason in ("interrupted", "terminated") else "stopped"


def rows(
    output: str, *, run_file: str | None = None, statuses: Sequence[str] = (), limit: int | None = None
) -> Iterator[Mapping[str, Any]]:
    """Rows in input order with input, raw reply, answer and every attempt; all statuses where none is named."""
    with RunFileReader(run_file_of(output, run_file)) as reader:
        yield from reader.rows(statuses, limit)
