"""Takes inputs and raw replies out of a run file."""

from __future__ import annotations

import time
from collections.abc import Callable

from rowmill.errors import JobError
from rowmill.runner.output.exporting import run_file_of
from rowmill.store import purge as purging
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader


def purge(output: str, *, run_file: str | None = None, confirm: Callable[[str], bool] | None = None) -> int:
    """Leaves statuses and answers alone; how many rows the run file holds.

    `confirm` is asked before; None means yes.  Raises JobError where it says no.
    """
    path = run_file_of(output, run_file)
    with RunFileLock(path):
        with RunFileReader(path) as reader:
            rows = reader.row_total()
            pending = rows - sum(reader.totals().counts.values())
        left = f" {pending:,} rows are pending and can never be answered then." if pending else ""
        question = (
            f"The inputs and replies of {rows:,} rows are taken out of {path} for good; answers and statuses stay, "
            f"and no row can be sent again.{left} Go on?"
        )
        if confirm is not None and not confirm(question):
            raise JobError("nothing was purged")
        purging.purge(path, time.strftime("%Y-%m-%d %H:%M:%S"))
    return rows


def purged(output: str, run_file: str | None = None) -> str | None:
    """When inputs and replies were taken out of a run file; None where they are in it."""
    with RunFileReader(run_file_of(output, run_file), checked=False) as reader:
        return reader.metadata("purged")
