"""A table that goes through any output and is read again has the same columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowmill.core.rows.chunks import ObjectChunk, TableChunk
from rowmill.core.rows.outputs import Batch, OutputColumns
from rowmill.io.sinks import OutputShape, create_sink
from rowmill.io.sources import open_source
from rowmill.ports import Chunk
from rowmill.records import Outcome, Status

FORMATS = ["jsonl", "csv", "tsv", "parquet"]
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(
    ["007", "nan", "null", '"', "a\r", "\r\n", "\0", "\ufeff", "\u2028", "=1", ",", "\t"]
)
names = st.lists(any_text, min_size=1, max_size=4, unique=True).filter(
    lambda found: not any(name.startswith("_") or name.startswith("\ufeff") for name in found)
)


def outcome(index: int) -> Outcome:
    return Outcome(index, Status.OK, None, None, None, None, 1, None, None, None, None, None)


def outcomes(chunk: Chunk) -> list[Outcome]:
    return [outcome(i) for i in chunk.indices]


def again(folder: Path, chunk: Chunk, format: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """The chunk's rows, written in this format and read from there."""
    output = OutputColumns(columns, ())
    path = str(folder / f"out.{format}")
    sink = create_sink(path, OutputShape(format), output, lambda: [chunk])
    sink.write(Batch(chunk, outcomes(chunk), output))
    sink.commit()
    rows = [row for part in open_source(path).chunks() for row in part.records()]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


@pytest.mark.parametrize("second", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_text_comes_through_any_pair_of_formats(tmp_path: Path, first: str, second: str, data: st.DataObject) -> None:
    columns = tuple(data.draw(names))
    cells = data.draw(st.lists(st.lists(any_text, min_size=len(columns), max_size=len(columns)), max_size=5))
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    once = again(tmp_path, TableChunk(range(len(cells)), columns, cells), first, columns)
    assert once == rows
    assert again(tmp_path, ObjectChunk(range(len(once)), once), second, columns) == rows


numbers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([numbers, floats, st.booleans(), any_text]).flatmap(lambda kind: st.lists(st.none() | kind)))
def test_values_of_one_type_come_through_unchanged(tmp_path: Path, format: str, values: list[Any]) -> None:
    chunk = ObjectChunk(range(len(values)), [{"a": value} for value in values])
    found = [row["a"] for row in again(tmp_path, chunk, format, ("a",))]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), json_values), max_size=5))
def test_any_json_comes_through_json_lines_unchanged(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert again(tmp_path, ObjectChunk(range(len(rows)), rows), "jsonl", ()) == rows


@pytest.mark.parametrize("format", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), json_values), max_size=5))
def test_any_json_can_be_written_in_every_format(tmp_path: Path, format: str, rows: list[dict[str, Any]]) -> None:
    assert len(again(tmp_path, ObjectChunk(range(len(rows)), rows), format, ("a", "b"))) == len(rows)
