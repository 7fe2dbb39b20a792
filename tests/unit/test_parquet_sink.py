"""Parquet output: schema and row groups."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rowmill.core.rows.chunks import ArrowChunk, ObjectChunk, TableChunk
from rowmill.core.rows.outputs import Batch, OutputColumns
from rowmill.errors import OutputError
from rowmill.io.sinks import OutputShape, create_sink
from rowmill.ports import Chunk
from rowmill.records import Outcome, Status


def outcome(index: int) -> Outcome:
    return Outcome(index, Status.OK, None, None, None, None, 1, None, None, None, None, None)


def written(folder: Path, chunks: list[Any]) -> pq.ParquetFile:
    names = tuple(dict.fromkeys(name for chunk in chunks for name in chunk.columns))
    columns = OutputColumns(names, ())
    sink = create_sink(str(folder / "out"), OutputShape("parquet"), columns, lambda: chunks)
    for chunk in chunks:
        outcomes = [outcome(i) for i in chunk.indices]
        sink.write(Batch(chunk, outcomes, columns))
    sink.commit()
    return pq.ParquetFile(folder / "out")


def test_types_that_parquet_has_come_back(tmp_path: Path) -> None:
    columns: dict[str, pa.Array] = {
        "a": pa.array([2**63], pa.uint64()),
        "b": pa.array([1], pa.timestamp("ns", "UTC")),
        "c": pa.array(["x"]).dictionary_encode(),
        "d": pa.array([{"x": [1]}]),
        "e": pa.array([Decimal("1.10")]),
        "f": pa.nulls(1),
        "g": pa.array([1], pa.duration("us")),
    }
    table = written(tmp_path, [ArrowChunk(range(1), pa.record_batch(columns))]).read()
    assert table.select(list(columns)).to_batches()[0].columns == list(columns.values())


def test_a_type_that_parquet_lacks_is_refused_with_advice_and_nothing_is_left(tmp_path: Path) -> None:
    column = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(OutputError, match=r"write \.jsonl or \.csv instead"):
        written(tmp_path, [ArrowChunk(range(1), pa.record_batch({"a": column}))])
    assert list(tmp_path.iterdir()) == []


def test_the_schema_does_not_depend_on_which_rows_come_first(tmp_path: Path) -> None:
    parts: list[list[dict[str, Any]]] = [[{"a": 1}], [{"a": 1.5, "b": {"x": 1}}], [{"a": None, "b": "text"}]]
    schemas = set()
    for order in (parts, parts[::-1]):
        chunks: list[Chunk] = [ObjectChunk(range(i, i + 1), rows) for i, rows in enumerate(order)]
        schema = written(tmp_path, chunks).schema_arrow
        schemas.add((str(schema.field("a").type), str(schema.field("b").type)))
    assert schemas == {("double", "string")}


def test_small_batches_share_row_groups_of_bounded_size(tmp_path: Path) -> None:
    rows = [["x"]] * 1_000
    chunks = [TableChunk(range(i * 1_000, (i + 1) * 1_000), ("a",), rows) for i in range(70)]
    metadata = written(tmp_path, chunks).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [66_000, 4_000]


def test_long_texts_make_row_groups_of_fewer_rows(tmp_path: Path) -> None:
    chunks = [TableChunk(range(i, i + 1), ("a",), [["x" * 20_000_000]]) for i in range(6)]
    assert written(tmp_path, chunks).metadata.num_row_groups == 2
