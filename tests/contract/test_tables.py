"""What every database promises as an output, asked of all three with the same rows."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rowmill.core.names.databases import Mode, Target, WriteReceipt, database_url
from rowmill.core.rows.chunks import ArrowChunk
from rowmill.core.rows.outputs import AnswerColumn, Batch, OutputColumns
from rowmill.errors import OutputError
from rowmill.io.sinks import check_target, create_table_sink, table_rows
from rowmill.io.sinks.database import connected
from rowmill.io.sources import open_database
from rowmill.ports import Chunk, Sink
from rowmill.records import Outcome, Status

ANSWER = (AnswerColumn("label", "string"), AnswerColumn("more", "json"))
NUMBERS = itertools.count()


def outcomes(chunk: Chunk, label: str) -> list[Outcome | None]:
    answer = f'{{"label":"{label}","more":["→",1]}}'.encode()
    return [Outcome(i, Status.OK, answer, None, "e", "m", 1, 0.25, 10, None, 1e-06, None) for i in chunk.indices]


@dataclass
class Database:
    """One database; `table` is a table of this test's own."""

    url: str
    table: str = field(default_factory=lambda: f"t{next(NUMBERS)}")

    def target(self, mode: Mode = "create", id: str | None = None) -> Target:
        return Target(database_url(self.url), self.table, mode, id)

    def sink(self, columns: dict[str, Any], target: Target, label: str = "good", **options: Any) -> Sink:
        """A sink that has been given all the rows."""
        batch = pa.RecordBatch.from_pydict(columns)
        chunk = ArrowChunk(range(batch.num_rows), batch)
        shape = OutputColumns(tuple(columns), ANSWER)
        sink = create_table_sink(target, shape, lambda: [chunk], **options)
        sink.write(Batch(chunk, outcomes(chunk, label), shape))
        return sink

    def write(self, columns: dict[str, Any], mode: Mode = "create", id: str | None = None, label: str = "good") -> None:
        self.sink(columns, self.target(mode, id), label).commit()

    def read(self) -> list[dict[str, Any]]:
        source = open_database(database_url(self.url), f"SELECT * FROM {self.target().table.quoted} ORDER BY 1", None)
        return [row for chunk in source.chunks() for row in chunk.records()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.read()]

    def execute(self, *statements: str) -> None:
        dialect = connected(database_url(self.url))
        dialect.make_stage("a INTEGER")
        dialect.begin()
        for statement in statements:
            dialect.execute(statement)
        dialect.commit()
        dialect.close()

    def is_there(self) -> bool:
        return table_rows(self.target()) is not None


@pytest.fixture(params=["postgresql", "sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgresql":
        return Database(request.getfixturevalue("postgresql").url)
    return Database(f"{request.param}:///{tmp_path}/a.db")


ROWS = {"id": [1, 2, 3], "text": ["→ 馬 😀", None, 'it\'s; "x"']}


def test_a_table_is_made_with_the_columns_of_the_output(database: Database) -> None:
    database.write(ROWS)
    rows = database.read()
    assert list(rows[0])[:6] == ["id", "text", "label", "more", "_row", "_status"]
    assert [row["text"] for row in rows] == ROWS["text"]
    assert [row["_row"] for row in rows] == [0, 1, 2]
    assert rows[0]["more"].replace(" ", "") == '["→",1]'
    assert rows[0]["_input_tokens"] == 10
    assert rows[0]["_cost_usd"] == 1e-06


def test_an_output_without_rows_is_an_empty_table(database: Database) -> None:
    database.write({"id": pa.array([], pa.int64())})
    assert database.read() == []
    assert database.is_there()


def test_many_rows_come_through_in_several_loads(database: Database) -> None:
    number = 40_000
    database.write({"id": list(range(number))})
    assert table_rows(database.target()) == number
    assert database.column("id")[-1] == number - 1


def test_nothing_is_visible_before_the_commit(database: Database) -> None:
    sink = database.sink(ROWS, database.target())
    if database.target().url.kind != "duckdb":  # which lets only one in
        assert not database.is_there()
    sink.commit()
    assert database.is_there()


def test_what_is_given_up_leaves_nothing(database: Database) -> None:
    sink = database.sink(ROWS, database.target())
    sink.abort()
    sink.abort()
    assert not database.is_there()


def test_a_table_that_is_there_is_not_overwritten(database: Database) -> None:
    database.write(ROWS)
    with pytest.raises(OutputError, match="exists: it is not overwritten"):
        check_target(database.target())
    with pytest.raises(OutputError, match="exists: it is not overwritten"):
        database.write(ROWS, label="other")
    assert database.column("label") == ["good"] * 3


def test_replacing_takes_the_old_rows_away(database: Database) -> None:
    database.write(ROWS)
    database.write({"id": [7], "text": ["x"]}, "replace", label="new")
    assert database.column("label") == ["new"]


def test_replacing_a_table_of_another_shape_makes_it_anew(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (other INTEGER)")
    database.write(ROWS, "replace")
    assert "other" not in database.read()[0]


def test_appending_keeps_the_old_rows_and_adds_the_columns_that_lack(database: Database) -> None:
    database.execute(
        f"CREATE TABLE {database.table} (id INTEGER, own INTEGER)", f"INSERT INTO {database.table} VALUES (0, 5)"
    )
    database.write(ROWS, "append")
    rows = database.read()
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert [row["own"] for row in rows] == [5, None, None, None]
    assert [row["label"] for row in rows] == [None, "good", "good", "good"]


def test_an_upsert_twice_leaves_one_row_a_row(database: Database) -> None:
    database.write(ROWS, "upsert", "id")
    once = database.read()
    database.write(ROWS, "upsert", "id")
    assert database.read() == once
    assert len(once) == 3


def test_an_upsert_changes_known_rows_adds_new_ones_and_leaves_the_rest(database: Database) -> None:
    database.execute(
        f"CREATE TABLE {database.table} (id INTEGER, text TEXT, own INTEGER)",
        f"INSERT INTO {database.table} VALUES (0, 'zero', 5), (2, 'old', 6)",
    )
    database.write(ROWS, "upsert", "id")
    rows = {row["id"]: row for row in database.read()}
    assert sorted(rows) == [0, 1, 2, 3]
    assert (rows[0]["text"], rows[0]["own"], rows[0]["label"]) == ("zero", 5, None)
    assert (rows[2]["text"], rows[2]["own"], rows[2]["label"]) == (None, 6, "good")


@pytest.mark.parametrize(("kind", "ids"), [("INTEGER", ["1", "2"]), ("TEXT", [1, 2]), ("VARCHAR(9)", [1, 2])])
def test_a_key_is_found_in_a_column_of_another_type(database: Database, kind: str, ids: list[Any]) -> None:
    database.execute(
        f"CREATE TABLE {database.table} (id {kind}, own INTEGER)", f"INSERT INTO {database.table} VALUES ('2', 5)"
    )
    for _ in range(2):
        database.write({"id": ids}, "upsert", "id")
    assert [(str(row["id"]), row["own"], row["label"]) for row in database.read()] == [
        ("1", None, "good"),
        ("2", 5, "good"),
    ]


@pytest.mark.parametrize(
    ("ids", "words"),
    [([1, 1, None], "row 2 without a value; rows 0 and 1 with the same"), ([5, 6, 5], "rows 0 and 2 with the same")],
)
def test_a_key_that_does_not_tell_the_rows_is_refused_with_them(
    database: Database, ids: Sequence[int | None], words: str
) -> None:
    with pytest.raises(OutputError, match=words):
        database.write({"id": ids}, "upsert", "id")
    assert not database.is_there()


def test_a_key_that_no_column_is_called_is_refused(database: Database) -> None:
    with pytest.raises(OutputError, match="no column nr; there are id, text, label"):
        database.write(ROWS, "upsert", "nr")
    database.execute(f"CREATE TABLE {database.table} (id INTEGER)")
    with pytest.raises(OutputError, match="no column nr; there are id"):
        check_target(database.target("upsert", "nr"))


def test_a_row_that_does_not_fit_leaves_the_table_as_it_was(database: Database) -> None:
    database.execute(
        f"CREATE TABLE {database.table} (id INTEGER CHECK (id < 3), text TEXT)",
        f"INSERT INTO {database.table} VALUES (0, 'zero')",
    )
    with pytest.raises(OutputError, match="is as it was"):
        database.write(ROWS, "append")
    assert database.read() == [{"id": 0, "text": "zero"}]


def test_odd_names_are_names(database: Database) -> None:
    database.table = '"odd ""name"" .x"'
    database.write({'a "b"': [1], "select": [2], "naïve; --": [3]})
    assert list(database.read()[0].values())[:3] == [1, 2, 3]


def test_a_run_writes_its_own_table_again(database: Database) -> None:
    receipts: list[WriteReceipt] = []
    database.sink(ROWS, database.target(), remember=receipts.append).commit()
    database.sink(ROWS, database.target(), "better", receipts=receipts).commit()
    assert database.column("label") == ["better"] * 3


def test_a_run_does_not_write_over_what_others_have_changed_in_its_table(database: Database) -> None:
    receipts: list[WriteReceipt] = []
    database.sink(ROWS, database.target(), remember=receipts.append).commit()
    database.execute(f"DELETE FROM {database.table} WHERE id = 1")
    with pytest.raises(OutputError, match="exists"):
        database.sink(ROWS, database.target(), "better", receipts=receipts).commit()
    assert database.column("label") == ["good"] * 2


def test_a_run_that_was_killed_over_its_commit_does_not_append_twice(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id INTEGER)", f"INSERT INTO {database.table} VALUES (9)")
    receipts: list[WriteReceipt] = []
    database.sink(ROWS, database.target("append"), remember=receipts.append).commit()
    assert not receipts[0].settled
    database.sink(ROWS, database.target("append"), receipts=receipts).commit()
    assert database.column("id") == [1, 2, 3, 9]


def test_a_run_that_was_killed_before_its_commit_appends(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id INTEGER)")
    receipts: list[WriteReceipt] = []

    def killed(receipt: WriteReceipt) -> None:
        receipts.append(receipt)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.sink(ROWS, database.target("append"), remember=killed).commit()
    assert database.column("id") == []
    database.sink(ROWS, database.target("append"), receipts=receipts).commit()
    assert database.column("id") == [1, 2, 3]


def test_a_run_whose_rows_have_changed_is_not_appended_again(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id INTEGER)")
    database.write(ROWS, "append")
    receipt = WriteReceipt(str(database_url(database.url)), database.table, "append", (), 3, 0, settled=True)
    with pytest.raises(OutputError, match="would double them"):
        database.sink(ROWS, database.target("append"), receipts=[receipt]).commit()
    assert len(database.read()) == 3


def test_a_missing_schema_is_refused(database: Database) -> None:
    database.table = "nowhere.t"
    with pytest.raises(OutputError, match="as it was"):
        database.write(ROWS)


Same = Callable[[Any], Any]
D = Decimal
TYPES: dict[str, tuple[pa.Array, dict[str, list[Any]]]] = {
    "64-bit integers": (pa.array([2**63 - 1, -(2**63), None]), {}),
    "small integers": (pa.array([127, -128, None], pa.int8()), {}),
    "unsigned integers": (
        pa.array([2**64 - 1, 0, None], pa.uint64()),
        {
            "postgresql": [D(2**64 - 1), D(0), None],
            "sqlite": [str(2**64 - 1), "0", None],
        },
    ),
    "doubles": (pa.array([0.1, float("inf"), None]), {}),
    "booleans": (pa.array([True, False, None]), {"sqlite": [1, 0, None]}),
    "bytes": (pa.array([b"\x00\xff", b"", None]), {}),
    "empty text": (pa.array(["", " ", None]), {}),
    "decimals": (
        pa.array([D("-1.50"), D("99999999.99"), None], pa.decimal128(10, 2)),
        {"sqlite": ["-1.50", "99999999.99", None]},
    ),
    "long decimals": (
        pa.array([D("12345678901234567890123456789.123456789")], pa.decimal128(38, 9)),
        {"sqlite": ["12345678901234567890123456789.123456789"]},
    ),
    "moments": (
        pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None], pa.timestamp("us")),
        {"sqlite": ["2024-02-29T01:02:03.000004", None]},
    ),
    "moments with a zone": (
        pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None], pa.timestamp("us", "UTC")),
        {"sqlite": ["2024-02-29T01:02:03.000004+00:00", None]},
    ),
    "dates": (pa.array([datetime.date(1, 1, 1), None]), {"sqlite": ["0001-01-01", None]}),
    "times": (pa.array([datetime.time(23, 59, 59, 999_999)]), {"sqlite": ["23:59:59.999999"]}),
    "lists": (pa.array([[1, None], [], None]), {"sqlite": ["[1,null]", "[]", None]}),
    "lists of text": (pa.array([["a", None, ""]]), {"sqlite": ['["a",null,""]']}),
    "structs": (pa.array([{"a": 1}]), {"postgresql": ['{"a": 1}'], "sqlite": ['{"a":1}']}),
    "dictionaries": (pa.array(["x", "y", None]).dictionary_encode(), {}),
    "nothing but null": (pa.nulls(2), {}),
}


@pytest.mark.parametrize("kind", TYPES)
def test_values_come_back_as_they_were(database: Database, kind: str) -> None:
    array, otherwise = TYPES[kind]
    database.write({"id": list(range(len(array))), "value": array})
    found = database.column("value")
    expected = otherwise.get(database.target().url.kind, array.to_pylist())
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def test_a_nan_is_kept_or_null(database: Database) -> None:
    database.write({"id": [0], "value": [float("nan")]})
    [found] = database.column("value")
    assert found is None if database.target().url.kind == "sqlite" else found != found


def test_a_nul_sign_does_not_stop_an_output(database: Database) -> None:
    database.write({"id": [0], "value": ["a\0b"], "list": [["\0"]], "nested": [{"\0k": "\0v"}]})
    [row] = database.read()
    replacement = "\N{REPLACEMENT CHARACTER}" if database.target().url.kind == "postgresql" else "\0"
    assert row["value"] == f"a{replacement}b"


def test_text_goes_into_columns_of_other_types(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id INTEGER, label TEXT, number INTEGER, day DATE)")
    database.write({"id": [1], "number": ["17"], "day": ["2024-02-29"]}, "append")
    [row] = database.read()
    assert row["number"] == 17
    assert str(row["day"]) == "2024-02-29"
