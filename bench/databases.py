"""PostgreSQL in and out on loopback, SQLite and DuckDB beside it: rows a second, peak memory; takes a minute.

A row has an id, a text of about 100 bytes, a decimal, a moment and a boolean, and on the way out what a run adds.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from tests.postgresql import running_server

from rowmill.core.names.databases import Target, database_url
from rowmill.core.rows.chunks import ArrowChunk
from rowmill.core.rows.outputs import AnswerColumn, Batch, OutputColumns
from rowmill.io.sinks import create_table_sink
from rowmill.io.sources import open_database
from rowmill.ports import Chunk
from rowmill.records import Outcome, Status

ROWS = 300_000
PER_CHUNK = 1_000
ANSWER = b'{"label":"positive"}'


def chunks() -> Iterator[Chunk]:
    for first in range(0, ROWS, PER_CHUNK):
        ids = range(first, first + PER_CHUNK)
        batch = pa.RecordBatch.from_pydict(
            {
                "id": ids,
                "text": [f"review {number} " + "x" * 85 for number in ids],
                "price": pa.array([Decimal(number % 1000) / 4 for number in ids], pa.decimal128(10, 2)),
                "written": pa.array(ids, pa.timestamp("us", "UTC")),
                "kept": [number % 2 == 0 for number in ids],
            }
        )
        yield ArrowChunk(ids, batch)


@contextmanager
def measured(what: str) -> Iterator[None]:
    started, used = time.monotonic(), time.process_time()
    yield
    seconds, cpu_s = time.monotonic() - started, time.process_time() - used
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"what": what, "rows_per_s": round(ROWS / seconds), "cpu_s": round(cpu_s, 2), "peak_mb": peak_mb}))
    sys.stdout.flush()


def measure(url: str) -> None:
    """Out by create and by an upsert over all rows, in again."""
    kind = database_url(url).kind
    columns = OutputColumns(("id", "text", "price", "written", "kept"), (AnswerColumn("label", "string"),))
    stored = list(chunks())
    for target in (Target(database_url(url), "bench"), Target(database_url(url), "bench", "upsert", "id")):
        with measured(f"{kind} out, {target.mode}"):
            sink = create_table_sink(target, columns, lambda: stored)
            for chunk in stored:
                outcomes = [
                    Outcome(i, Status.OK, ANSWER, None, "e", "m", 1, 0.25, 10, 2, 1e-6, None) for i in chunk.indices
                ]
                sink.write(Batch(chunk, outcomes, columns))
            sink.commit()
    with measured(f"{kind} in"):
        assert sum(map(len, open_database(database_url(url), None, "bench").chunks())) == ROWS


def main() -> None:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(running_server())
        for url in (server.url, f"sqlite:///{folder}/a.db", f"duckdb:///{folder}/a.duckdb"):
            measure(url)
