"""An output that does not fit on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rowmill.io.sinks import FORMATS

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
