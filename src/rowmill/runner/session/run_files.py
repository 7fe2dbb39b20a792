"""The files of a run before it starts: made where they are missing, set aside where the user begins anew."""

from __future__ import annotations

from rowmill.core.names.files import failures_path
from rowmill.errors import OutputError
from rowmill.io.files import exists, rename
from rowmill.io.sinks import translated
from rowmill.runner.output.destinations import check_destination
from rowmill.runner.output.exporting import refuse_purged
from rowmill.runner.output.untouched import keep_edits
from rowmill.runner.setup.plan import Plan
from rowmill.store import connection as connections
from rowmill.store.reader import RunFileReader

SIDE_FILES = ("-wal", "-shm", "-spent")


def ensure_run_file(plan: Plan) -> None:
    """Checks the run file, or makes it; an output without one is not overwritten, nor a table of others."""
    is_there = connections.is_there(plan.run_file)
    if is_there:
        connections.check(plan.run_file)
        with RunFileReader(plan.run_file, checked=False) as reader:
            refuse_purged(reader)
    if plan.target is not None:
        check_destination(plan.target, plan.run_file)
    if is_there:
        return
    with translated(plan.output):
        if plan.target is None and exists(plan.output):
            raise OutputError(
                f"{plan.output} exists and has no run file {plan.run_file}: it is not overwritten; "
                "choose another -o, or --fresh to rename it to *.old"
            )
    connections.create(plan.run_file)
    keep_edits(plan.job, plan.run_file)


def set_aside(plan: Plan) -> None:
    """Renames run file, output and failures to *.old (*.old2, ... where that exists); deletes nothing.

    A table in a database stays as it is.
    """
    run_file = str(plan.run_file)
    names = [run_file, failures_path(plan.job.stem), *(run_file + end for end in SIDE_FILES)]
    names += [] if plan.target is not None else [plan.output]
    with translated(plan.output):
        number = 1
        while any(exists(_old(name, number)) for name in names):
            number += 1
        for name in names:
            if exists(name):
                rename(name, _old(name, number))


def _old(name: str, number: int) -> str:
    """Side files keep their ending behind the run file's new name, or SQLite would not find them."""
    ending = ".old" if number == 1 else f".old{number}"
    for side in SIDE_FILES:
        if name.endswith(".rowmill" + side):
            return name.removesuffix(side) + ending + side
    return name + ending
