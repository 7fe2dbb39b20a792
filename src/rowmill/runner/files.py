"""The files of a run before it starts: made where they are missing, set aside where the user begins anew."""

from __future__ import annotations

from pathlib import Path

from rowmill.errors import OutputError
from rowmill.runner.exporting import failures_path
from rowmill.runner.places import check_place
from rowmill.runner.plan import Plan
from rowmill.store import connection as connections

SIDE_FILES = ("-wal", "-shm")


def ensure_run_file(plan: Plan) -> None:
    """Checks the run file, or makes it; an output without one is not overwritten, nor a table of others."""
    if plan.run_file.exists():
        connections.check(plan.run_file)
    if plan.target is not None:
        check_place(plan.target, plan.run_file)
    if plan.run_file.exists():
        return
    if plan.target is None and plan.output.exists():
        raise OutputError(
            f"{plan.output} exists and has no run file {plan.run_file}: it is not overwritten; "
            "choose another -o, or --fresh to rename it to *.old"
        )
    connections.create(plan.run_file)


def set_aside(plan: Plan) -> None:
    """Renames run file, output and failures to *.old (*.old2, ... where that exists); deletes nothing.

    A table in a database stays as it is.
    """
    names = [plan.run_file, failures_path(plan.job.stem)]
    names += [] if plan.target is not None else [plan.output]
    names += [plan.run_file.with_name(plan.run_file.name + end) for end in SIDE_FILES]
    number = 1
    while any(_old(path, number).exists() for path in names):
        number += 1
    for path in names:
        if path.exists():
            path.rename(_old(path, number))


def _old(path: Path, number: int) -> Path:
    """Side files keep their ending behind the run file's new name, or SQLite would not find them."""
    ending = ".old" if number == 1 else f".old{number}"
    for side in SIDE_FILES:
        if path.name.endswith(".rowmill" + side):
            return path.with_name(path.name.removesuffix(side) + ending + side)
    return path.with_name(path.name + ending)
