"""Output rows: names, order, types."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from rowmill.core.rows.chunks import ArrowChunk, ObjectChunk, TableChunk
from rowmill.core.rows.outputs import (
    AnswerColumn,
    Batch,
    OutputColumns,
    arrow_batch,
    arrow_schema,
    failure_record,
    input_columns,
)
from rowmill.errors import OutputError
from rowmill.ports import Chunk
from rowmill.records import Fault, Outcome, Status

META = [
    "_row",
    "_status",
    "_error",
    "_endpoint",
    "_model",
    "_attempts",
    "_latency_s",
    "_input_tokens",
    "_output_tokens",
    "_cost_usd",
]
PLAIN = (AnswerColumn("answer", "string"),)


def outcome(index: int, answer: bytes | None = b'{"answer":"yes"}', status: Status = Status.OK) -> Outcome:
    return Outcome(index, status, answer, None, "e", "m", 1, 0.5, 10, 2, 0.001, "why", 7)


def test_columns_come_in_the_promised_order() -> None:
    assert list(OutputColumns(("id", "text"), PLAIN).names) == ["id", "text", "answer", *META]


def test_reasoning_and_duplicates_have_columns_only_where_asked() -> None:
    columns = OutputColumns((), PLAIN, with_reasoning=True, with_duplicates=True)
    assert list(columns.names)[-2:] == ["_reasoning", "_duplicate_of"]
    record = next(Batch(TableChunk(range(1), (), [[]]), [outcome(0)], columns).records())
    assert (record["_reasoning"], record["_duplicate_of"]) == ("why", 7)


def test_prefixes_are_put_before_names_and_meta_prefix_replaces_the_underscore() -> None:
    columns = OutputColumns(("id",), PLAIN, answer_prefix="llm_", meta_prefix="rm_")
    assert columns.names[:3] == ("id", "llm_answer", "rm_row")


def test_every_clash_of_names_is_named_with_the_option_that_helps() -> None:
    columns = OutputColumns(
        ("answer", "_status", "x"), (AnswerColumn("answer", "string"), AnswerColumn("_row", "json"))
    )
    with pytest.raises(OutputError) as caught:
        columns.check()
    first, second, third = caught.value.faults
    assert "'answer'" in first
    assert "--answer-prefix" in first
    assert "'_status'" in second
    assert "--meta-prefix" in second
    assert "'_row'" in third


def test_a_new_key_in_a_later_chunk_can_be_asked_about() -> None:
    columns = OutputColumns((), PLAIN)
    assert columns.clashes(["id"]) == []
    assert len(columns.clashes(["id", "answer"])) == 1


def test_the_input_columns_of_many_chunks_are_their_union() -> None:
    chunks = [ObjectChunk(range(1), [{"b": 1}]), ObjectChunk(range(1, 3), [{"a": 1, "b": 2}, {"c": 1}])]
    assert input_columns(chunks) == ("b", "a", "c")


def test_pending_rows_are_left_out() -> None:
    chunk = TableChunk(range(3), ("id",), [["a"], ["b"], ["c"]])
    batch = Batch(chunk, [outcome(0), None, outcome(2)], OutputColumns(("id",), PLAIN))
    assert [(record["id"], record["_row"]) for record in batch.records()] == [("a", 0), ("c", 2)]
    assert len(batch) == 2


def test_a_record_holds_input_answer_and_meta_in_order() -> None:
    batch = Batch(TableChunk(range(4, 5), ("id",), [["007"]]), [outcome(4)], OutputColumns(("id",), PLAIN))
    record = next(batch.records())
    assert list(record) == ["id", "answer", *META]
    assert list(record.values()) == ["007", "yes", 4, "ok", None, "e", "m", 1, 0.5, 10, 2, 0.001]


def test_keys_that_an_object_lacks_are_lacking_in_its_record() -> None:
    chunk = ObjectChunk(range(2), [{"a": None}, {"b": 1}])
    first, second = Batch(chunk, [outcome(0), outcome(1)], OutputColumns(("a", "b"), PLAIN)).records()
    assert list(first)[:2] == ["a", "answer"]
    assert list(second)[:2] == ["b", "answer"]


def test_a_row_without_an_answer_has_nulls() -> None:
    failed = outcome(0, None, Status.FAILED)
    batch = Batch(TableChunk(range(1), ("a",), [[]], {0: Fault(2, "bad")}), [failed], OutputColumns(("a",), PLAIN))
    assert next(batch.records())["answer"] is None
    assert next(batch.rows())[:3] == [None, None, 0]
    assert arrow_batch(batch, arrow_schema([batch.chunk], batch.columns)).to_pylist()[0]["a"] is None


def test_a_failure_record_is_the_input_and_one_key() -> None:
    failed = outcome(3, None, Status.FILTERED).replaced(error="no")
    assert failure_record({"id": 1}, failed, "raw reply") == {
        "id": 1,
        "_rowmill": {"row": 3, "status": "filtered", "error": "no", "raw": "raw reply"},
    }


def type_of(*values: Any) -> str:
    """Type of a column of JSON values, in whatever order they come."""
    columns = OutputColumns(("a",), ())
    found = set()
    for order in permutations(values):
        chunks = [ObjectChunk(range(1), [{"a": value}]) for value in order] + [ObjectChunk(range(1), [{}])]
        found.add(str(arrow_schema(chunks, columns).field("a").type))
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None], "int64"),
        ([1, 2.5, None], "double"),
        ([2**53 + 1, 2.5], "string"),
        ([2**63, 1], "string"),
        ([-(2**63), 2**63 - 1], "int64"),
        ([True, None], "bool"),
        ([True, 1], "string"),
        (["a", None], "string"),
        (["a", 1, 2.5], "string"),
        ([{"x": 1}, [1]], "string"),
        ([None], "string"),
        ([Decimal("1E+400"), 1.5], "string"),
    ],
)
def test_the_type_of_json_values_does_not_depend_on_their_order(values: list[Any], expected: str) -> None:
    assert type_of(*values) == expected


def arrow_values(chunk: Chunk, name: str = "a") -> list[Any]:
    columns = OutputColumns((name,), ())
    outcomes = [outcome(index) for index in chunk.indices]
    batch = arrow_batch(Batch(chunk, outcomes, columns), arrow_schema([chunk], columns))
    values: list[Any] = batch.column(name).to_pylist()
    return values


def test_values_of_a_widened_column_are_json_and_text_as_it_is() -> None:
    values: Sequence[Any] = ["x", 2**70, 1.5, True, None, {"k": "→"}, Decimal("1E+400")]
    chunk = ObjectChunk(range(7), [{"a": value} for value in values])
    assert arrow_values(chunk) == ["x", str(2**70), "1.5", "true", None, '{"k":"→"}', "1E+400"]


def test_arrow_types_are_kept() -> None:
    kinds: dict[str, pa.Array] = {
        "a": pa.array([2**63], pa.uint64()),
        "b": pa.array([1], pa.timestamp("ns", "UTC")),
        "c": pa.array(["x"]).dictionary_encode(),
        "d": pa.array([{"x": [1]}]),
        "e": pa.nulls(1),
        "f": pa.array([Decimal("1.10")]),
    }
    chunk = ArrowChunk(range(1), pa.record_batch(kinds))
    columns = OutputColumns(tuple(kinds), PLAIN)
    schema = arrow_schema([chunk], columns)
    assert [schema.field(name).type for name in kinds] == [column.type for column in kinds.values()]
    batch = arrow_batch(Batch(chunk, [outcome(0)], columns), schema)
    assert batch.select(list(kinds)).columns == list(kinds.values())


def test_a_column_that_one_file_lacks_is_null_there() -> None:
    first = ArrowChunk(range(1), pa.record_batch({"a": pa.array([1]), "n": pa.nulls(1)}))
    second = ArrowChunk(range(1, 2), pa.record_batch({"b": pa.array(["x"]), "n": pa.array([5], pa.int8())}))
    columns = OutputColumns(("a", "b", "n"), ())
    schema = arrow_schema([first, second], columns)
    assert schema.types[:3] == [pa.int64(), pa.string(), pa.int8()]
    rows = [arrow_batch(Batch(chunk, [outcome(0)], columns), schema).to_pylist()[0] for chunk in (first, second)]
    assert [(row["a"], row["b"], row["n"]) for row in rows] == [(1, None, None), (None, "x", 5)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("string", ["x", "1", "true", '{"k":1}', None]),
        ("number", [None, 1.0, None, None, None]),
        ("integer", [None, 1, None, None, None]),
        ("boolean", [None, None, True, None, None]),
        ("json", ['"x"', "1", "true", '{"k":1}', None]),
    ],
)
def test_answer_columns_have_the_type_of_their_kind_whatever_the_answer(kind: Any, expected: list[Any]) -> None:
    columns = OutputColumns((), (AnswerColumn("v", kind),))
    answers = [b'{"v":"x"}', b'{"v":1}', b'{"v":true}', b'{"v":{"k":1}}', b"{}"]
    chunk = ObjectChunk(range(5), [{} for _ in answers])
    batch = Batch(chunk, [outcome(index, answer) for index, answer in enumerate(answers)], columns)
    assert arrow_batch(batch, arrow_schema([chunk], columns)).column("v").to_pylist() == expected


@pytest.mark.parametrize(("text", "expected"), [("3.0", 3), ("3.5", None), (str(2**63), None), ("1e400", None)])
def test_an_integer_answer_that_is_none_becomes_null(text: str, expected: int | None) -> None:
    columns = OutputColumns((), (AnswerColumn("v", "integer"),))
    chunk = ObjectChunk(range(1), [{}])
    batch = Batch(chunk, [outcome(0, b'{"v":%b}' % text.encode())], columns)
    assert arrow_batch(batch, arrow_schema([chunk], columns)).column("v").to_pylist() == [expected]


def test_a_schema_without_any_row_has_all_columns() -> None:
    assert arrow_schema([], OutputColumns(("a",), PLAIN)).names == ["a", "answer", *META]


def test_a_batch_without_any_finished_row_is_empty() -> None:
    chunk = TableChunk(range(1), ("a",), [["x"]])
    columns = OutputColumns(("a",), PLAIN)
    assert arrow_batch(Batch(chunk, [None], columns), arrow_schema([chunk], columns)).num_rows == 0
