"""An output that does not fit on the disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rowmill.io.sinks import FORMATS

if TYPE_CHECKING:
    from tests.workplace import Workplace

# A limit on the size of files stands in for a full disk: the system refuses the write in the same way.
SCRIPT = """
import os, resource, sys
from rowmill.core.rows.chunks import TableChunk
from rowmill.errors import StoreFullError
from rowmill.core.rows.outputs import Batch, OutputColumns
from rowmill.records import Outcome, Status
from rowmill.io.sinks import OutputShape, create_sink

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
columns = OutputColumns(("a",), ())
chunk = TableChunk(range(1_000), ("a",), [[os.urandom(400).hex()] for _ in range(1_000)])
outcomes = [Outcome(i, Status.OK, None, *[None] * 3, 1, *[None] * 5) for i in range(1_000)]
sink = create_sink(sys.argv[1], OutputShape(sys.argv[2]), columns, lambda: [chunk])
try:
    sink.write(Batch(chunk, outcomes, columns))
    sink.commit()
except StoreFullError as error:
    print(error)
    sink.abort()
"""


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_is_said_and_the_unfinished_part_is_gone(tmp_path: Path, format: str) -> None:
    arguments = [sys.executable, "-c", SCRIPT, str(tmp_path / "out"), format]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert ended.stderr == ""
    assert ended.stdout.startswith("the disk is full")
    assert list(tmp_path.iterdir()) == []


CREATING = """
import resource, sys
from pathlib import Path
from rowmill.errors import StoreFullError
from rowmill.store.connection import create

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    create(Path(sys.argv[1]))
except StoreFullError as error:
    print(error)
"""


def test_a_run_file_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", CREATING, str(tmp_path / "out.jsonl.rowmill")]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert ended.stderr == ""
    assert "make room and run the same command again" in ended.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["nothing", "a database without a table"])
def test_what_a_full_disk_left_of_a_run_file_is_made_anew(workplace: Workplace, left: str) -> None:
    run_file = workplace.write("out.jsonl.rowmill", "")
    if left != "nothing":
        with closing(sqlite3.connect(run_file)) as file:
            file.execute("PRAGMA journal_mode = WAL")
        assert run_file.stat().st_size
    workplace.write_rows(2)
    assert workplace.run().code == 0
    assert len(workplace.output()) == 2


def test_a_database_of_others_is_not_made_anew(workplace: Workplace) -> None:
    with closing(sqlite3.connect(workplace.folder / "out.jsonl.rowmill")) as file:
        file.execute("CREATE TABLE theirs (value TEXT)")
    workplace.write_rows(2)
    ended = workplace.run()
    assert ended.code == 2
    assert "is not a run file" in ended.err
