"""Chunks: what goes in comes out, whole, in part, and through the run file."""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rowmill.core.rows.chunks import ArrowChunk, ObjectChunk, TableChunk, decode, row_keys
from rowmill.errors import RunFileError
from rowmill.ports import Chunk
from rowmill.records import Fault

FAULT = Fault(4, "expected 2 fields, found 1", "x")


def table() -> TableChunk:
    return TableChunk(range(5, 8), ("id", "text"), [["007", "a"], [], ["8", "\0\r\n"]], {1: FAULT})


def objects() -> ObjectChunk:
    rows: list[dict[str, Any]] = [
        {"id": 2**70, "text": "a"},
        {},
        {"text": None, "more": {"x": [1, 1.0, Decimal("1E+400")]}},
    ]
    return ObjectChunk(range(5, 8), rows, {1: FAULT})


def arrow() -> ArrowChunk:
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array([7, None, 2**62]), "text": pa.array(["a", "b", None]).dictionary_encode()}
    )
    return ArrowChunk(range(5, 8), batch)


CHUNKS = [table(), objects(), arrow()]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_decoded_chunk_equals_the_encoded_one(chunk: Chunk) -> None:
    again = decode(*chunk.encode(), chunk.indices)
    assert again == chunk
    assert list(again.records()) == list(chunk.records())
    assert again.encode() == chunk.encode()


@pytest.mark.parametrize("chunk", CHUNKS)
def test_taken_rows_keep_their_indices_values_and_faults(chunk: Chunk) -> None:
    taken = chunk.take([1, 2])
    assert list(taken.indices) == [6, 7]
    assert list(taken.records()) == list(chunk.records())[1:]
    assert taken.faults == ({0: FAULT} if chunk.faults else {})


@pytest.mark.parametrize("chunk", CHUNKS)
def test_rows_taken_with_gaps_have_packed_indices(chunk: Chunk) -> None:
    taken = chunk.take([0, 2])
    assert taken.indices == array("Q", [5, 7])
    assert decode(*taken.encode(), taken.indices) == taken


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("names", [["text"], ["text", "id"], ["nowhere"], ["id", "nowhere"], []])
def test_named_values_are_those_of_the_whole_row(chunk: Chunk, names: Sequence[str]) -> None:
    expected = [{name: row[name] for name in names if name in row} for row in chunk.records()]
    assert list(chunk.values(names)) == expected


def test_changing_a_record_does_not_change_the_chunk() -> None:
    chunk = objects()
    next(chunk.records())["id"] = 0
    assert next(chunk.records())["id"] == 2**70


def test_the_columns_of_objects_come_in_order_of_first_appearance() -> None:
    assert objects().columns == ("id", "text", "more")


@pytest.mark.parametrize("layout", ["table", "objects", "arrow"])
@pytest.mark.parametrize("payload", [b"", b"\xc1damaged", b"[[[]],[]]"])
def test_damaged_payload_is_an_error_that_names_the_rows(layout: str, payload: bytes) -> None:
    with pytest.raises(RunFileError, match="stored rows 3 to 4"):
        decode(layout, payload, range(3, 5))


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(RunFileError, match="does not know"):
        decode("scroll", b"", range(1))


def keys(chunk: Chunk, names: Sequence[str] | None) -> list[bytes]:
    packed = row_keys(chunk, names)
    return [packed[start : start + 16] for start in range(0, len(packed), 16)]


def test_keys_tell_values_and_types_apart() -> None:
    values: list[Any] = [1, 1.0, "1", True, None, [1], {"a": 1}, ""]
    rows = [{"a": value} for value in values] + [{}]
    assert len(set(keys(ObjectChunk(range(9), rows), ["a"]))) == 9


def test_keys_see_only_the_named_columns() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    same, other = ObjectChunk(range(2), rows), keys(ObjectChunk(range(2), rows), None)
    assert len(set(keys(same, ["a"]))) == 1
    assert len(set(other)) == 2


def test_a_value_does_not_pass_for_one_of_another_column() -> None:
    rows: list[dict[str, Any]] = [{"a": 1}, {"b": 1}]
    assert len(set(keys(ObjectChunk(range(2), rows), ["a", "b"]))) == 2


def test_the_order_of_an_objects_keys_does_not_matter() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}]
    assert len(set(keys(ObjectChunk(range(2), rows), None))) == 1


@pytest.mark.parametrize("names", [["b"], ["b", "a"], ["a", "c"], None])
def test_the_same_row_has_the_same_key_in_every_layout(names: Sequence[str] | None) -> None:
    row = {"a": "x", "b": "→"}
    chunks: list[Chunk] = [
        TableChunk(range(1), ("a", "b"), [["x", "→"]]),
        ObjectChunk(range(1), [dict(row)]),
        ArrowChunk(range(1), pa.RecordBatch.from_pylist([row])),
    ]
    assert len({row_keys(chunk, names) for chunk in chunks}) == 1


def test_a_fault_is_keyed_by_its_raw_line_and_not_by_its_number() -> None:
    chunk = TableChunk(
        range(3), ("a",), [[], [], []], {0: Fault(2, "r", "x"), 1: Fault(9, "r", "x"), 2: Fault(3, "r", "y")}
    )
    first, second, third = keys(chunk, ["a"])
    assert first == second != third


AWKWARD = {
    "ns": (pa.array([1, 1000, None], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
    "zone": (pa.array([1, 1000, None], pa.timestamp("ns", "+02:00")), "1970-01-01T02:00:00.000000001+0200"),
    "nowhere": (pa.array([0, None, None], pa.timestamp("us", "Foo/Bar")), "1970-01-01T00:00:00.000000Z"),
    "far": (pa.array([10**12, 0, None], pa.timestamp("s")), "1000000000000 s since 1970"),
    "old": (pa.array([-(10**12), 0, None], pa.timestamp("s")), "-29719-04-05T22:13:20"),
    "day": (pa.array([10**8, 0, None], pa.date32()), "100000000"),
    "took": (pa.array([-1_500_000_001, 1000, None], pa.duration("ns")), "-PT1.500000001S"),
    "clock": (pa.array([1, 1000, None], pa.time64("ns")), "00:00:00.000000001"),
    "struct": (
        pa.array([{"a": 1}, None, None], pa.struct([("a", pa.duration("ns"))])),
        {"a": "PT0.000000001S"},
    ),
    "list": (pa.array([[1], None, None], pa.list_(pa.duration("ns"))), ["PT0.000000001S"]),
    "map": (
        pa.array([[("k", 1)], None, None], pa.map_(pa.string(), pa.duration("ns"))),
        [("k", "PT0.000000001S")],
    ),
    "bytes": (pa.array([b"\xff", b"", None]), b"\xff"),
    "decimal": (pa.array([Decimal("1.10"), None, None]), Decimal("1.10")),
    "micro": (pa.array([1, 1000, None], pa.timestamp("us")), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
    "large": (pa.array(["x", None, None], pa.large_string()), "x"),
    "null": (pa.nulls(3), None),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_every_arrow_value_has_a_python_value(name: str) -> None:
    column, first = AWKWARD[name]
    chunk = ArrowChunk(range(3), pa.record_batch({"a": column}))
    values = [row["a"] for row in chunk.values(["a"])]
    assert values[0] == first
    assert values[2] is None
    assert len(row_keys(chunk, None)) == 48
    assert decode(*chunk.encode(), range(3)) == chunk


def test_arrow_text_that_is_no_utf8_shows_its_bytes() -> None:
    raw = pa.array([b"a\xff"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    chunk = ArrowChunk(range(1), pa.record_batch({"a": column}))
    assert list(chunk.records()) == [{"a": "a\\xff"}]


def test_unused_dictionary_entries_are_not_stored() -> None:
    words = pa.array([f"word {number}" for number in range(10_000)]).dictionary_encode()
    chunk = ArrowChunk(range(2), pa.record_batch({"a": words.slice(0, 2)}))
    layout, payload = chunk.encode()
    assert len(payload) < 2_000
    again = decode(layout, payload, range(2))
    assert isinstance(again, ArrowChunk)
    assert again.batch.schema == chunk.batch.schema
    assert list(again.records()) == list(chunk.records())
