"""What comes out of each database, type by type, and what is refused by name because it would come changed."""

from __future__ import annotations

import datetime
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from rowmill.core.names.databases import database_url
from rowmill.core.rows.chunks import decode
from rowmill.errors import JobError, SourceError
from rowmill.io.sources import open_database
from rowmill.ports import Source
from rowmill.runner import status

if TYPE_CHECKING:
    from tests.postgresql import Server

D = Decimal


def rows_of(source: Source) -> list[dict[str, Any]]:
    """Read, and read once more from what the run file would hold."""
    chunks = list(source.chunks())
    again = [decode(*chunk.encode(), chunk.indices) for chunk in chunks]
    rows = [row for chunk in chunks for row in chunk.records()]
    assert [row for chunk in again for row in chunk.records()] == rows
    return rows


def one(url: str, expression: str) -> Any:
    [row] = rows_of(open_database(database_url(url), f"SELECT {expression} AS v", None))
    return row["v"]


POSTGRESQL = {
    "9223372036854775807": 2**63 - 1,
    "1.5::float8": 1.5,
    "true": True,
    "NULL::int": None,
    "12.50::numeric(10,2)": D("12.50"),
    "1e-20::numeric(60,20)": D("0.00000000000000000001"),
    "1e30::numeric": "1" + "0" * 30,
    "'a→馬😀'::varchar(9)": "a→馬😀",
    "'\\x00ff'::bytea": b"\x00\xff",
    "'2024-02-29 12:00+02'::timestamptz": datetime.datetime(2024, 2, 29, 10, tzinfo=datetime.UTC),
    "'2024-02-29 12:00:00.000001'::timestamp": datetime.datetime(2024, 2, 29, 12, 0, 0, 1),
    "'2024-02-29'::date": datetime.date(2024, 2, 29),
    "'12:00:00.5'::time": datetime.time(12, 0, 0, 500_000),
    "'12:00+02'::timetz": "12:00:00+02",
    "'1 month 2 days'::interval": "1 mon 2 days",
    "'{\"a\": 1e400}'::json": '{"a": 1e400}',
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "ARRAY[1, NULL]": [1, None],
    "ARRAY[]::text[]": [],
    "ARRAY['{\"a\": 1}'::jsonb]": ['{"a": 1}'],
    "'10.0.0.0/8'::cidr": "10.0.0.0/8",
    "ROW(1, 'x')": "(1,x)",
    "int4range(1, 5)": "[1,5)",
    "4000000000::oid": "4000000000",
}


@pytest.mark.parametrize("expression", POSTGRESQL)
def test_values_of_postgresql_come_as_they_are(postgresql: Server, expression: str) -> None:
    found, expected = one(postgresql.url, expression), POSTGRESQL[expression]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 'infinity'::date AS until", 'select column "until" as text'),
        ("SELECT '-infinity'::timestamptz AS since", 'select column "since" as text'),
        ("SELECT ARRAY[[1, 2]] AS tags", 'select to_jsonb("tags")'),
        ("SELECT 'NaN'::numeric(5,2) AS price", "column price holds what is no number"),
        ("SELECT 1 AS a, 2 AS a", "more than one column named a"),
        ("SELECT * FROM nowhere", 'relation "nowhere" does not exist'),
        ("CREATE TABLE made (a int)", "cannot be read"),
        ("SELECT 1; SELECT 2", "multiple commands"),
    ],
)
def test_what_postgresql_cannot_give_exactly_is_refused_by_name(postgresql: Server, query: str, words: str) -> None:
    with pytest.raises(SourceError) as refused:
        rows_of(open_database(database_url(postgresql.url), query, None))
    assert words in str(refused.value)


def test_a_query_changes_nothing(postgresql: Server) -> None:
    postgresql.sql("CREATE SEQUENCE IF NOT EXISTS tickets")
    with pytest.raises(SourceError, match="read-only transaction"):
        rows_of(open_database(database_url(postgresql.url), "SELECT nextval('tickets')", None))


def test_a_query_may_end_as_people_end_it(postgresql: Server) -> None:
    source = open_database(database_url(postgresql.url), "SELECT 1 AS a -- one\n ; ", None)
    assert rows_of(source) == [{"a": 1}]


def test_rows_before_an_error_come_before_it(postgresql: Server) -> None:
    query = "SELECT 1 / (20000 - n) AS v, repeat('x', 100) AS text FROM generate_series(0, 30000) AS n"
    chunks = open_database(database_url(postgresql.url), query, None).chunks()
    came: list[int] = []
    with pytest.raises(SourceError, match=r"broke off after \d\d,\d\d\d rows: division by zero"):
        came.extend(map(len, chunks))
    assert 10_000 < sum(came) <= 20_000


def test_large_rows_come_in_small_chunks(postgresql: Server) -> None:
    query = "SELECT n, repeat('x', 1000000) AS text FROM generate_series(1, 12) AS n"
    chunks = list(open_database(database_url(postgresql.url), query, None).chunks())
    assert [row["n"] for chunk in chunks for row in chunk.records()] == list(range(1, 13))
    assert max(map(len, chunks)) <= 5


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://boss:s3cret@127.0.0.1:1/shop", "Connection refused"),
        ("postgresql://boss:$NO_SUCH_VARIABLE@127.0.0.1:1/shop", "NO_SUCH_VARIABLE, which is not set"),
        ("postgresql://boss:s3cret@127.0.0.1:1/shop?nonsense=1", 'invalid URI query parameter: "nonsense"'),
        ("sqlite:///nowhere.db", "there is no such file"),
        ("duckdb:///nowhere.db", "there is no such file"),
    ],
)
def test_a_database_that_is_not_there_is_a_source_error(url: str, words: str) -> None:
    with pytest.raises(SourceError, match="cannot be read") as refused:
        open_database(database_url(url), "SELECT 1", None).columns()
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_wrong_password_says_where_one_comes_from(postgresql: Server) -> None:
    with pytest.raises(SourceError, match="PGPASSWORD"):
        open_database(database_url(postgresql.locked_url), "SELECT 1", None).columns()


def test_any_cell_of_sqlite_may_hold_any_kind(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (v)")
        cells = [1, "1", 1.5, b"\x00", None, float("inf"), -(2**63), "a\0b"]
        connection.executemany("INSERT INTO t VALUES (?)", [(cell,) for cell in cells])
    found = [row["v"] for row in rows_of(open_database(database_url(f"sqlite:///{tmp_path}/a.db"), None, "t"))]
    assert found == cells
    assert list(map(type, found)) == list(map(type, cells))


def test_a_text_of_sqlite_that_is_none_is_a_row_that_fails(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER, v TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'good'), (2, CAST(x'ff41' AS TEXT))")
    [chunk] = open_database(database_url(f"sqlite:///{tmp_path}/a.db"), None, "t").chunks()
    assert list(chunk.records()) == [{"id": 1, "v": "good"}, {}]
    assert "column v is not valid UTF-8" in str(chunk.faults[1])


@pytest.mark.parametrize("query", ["DELETE FROM t", "SELECT * FROM nowhere", "SELECT 1 AS a, 2 AS a", "SELEC"])
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_that_cannot_be_read_from_changes_nothing(tmp_path: Path, kind: str, query: str) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (v INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(SourceError):
        rows_of(open_database(database_url(f"{kind}:///{path}"), query, None))
    assert rows_of(open_database(database_url(f"{kind}:///{path}"), None, "t")) == [{"v": 1}]


DUCKDB = {
    "9223372036854775807": 2**63 - 1,
    "170141183460469231731687303715884105727::HUGEINT": D(2**127 - 1),
    "12.50::DECIMAL(10,2)": D("12.50"),
    "'a'::BLOB": b"a",
    "TIMESTAMPTZ '2024-02-29 12:00+02'": datetime.datetime(2024, 2, 29, 10, tzinfo=datetime.UTC),
    "'12:00:00+02'::TIMETZ": "12:00:00+02",
    "INTERVAL 3 DAYS": "3 days",
    "'{\"a\":1}'::JSON": '{"a":1}',
    "'101'::BIT": "101",
    "[[1], NULL]": [[1], None],
    "{'a': 1}": {"a": 1},
    "NULL": None,
}


@pytest.mark.parametrize("expression", DUCKDB)
def test_values_of_duckdb_come_as_they_are(tmp_path: Path, expression: str) -> None:
    duckdb.connect(str(tmp_path / "a.db")).close()
    found, expected = one(f"duckdb:///{tmp_path}/a.db", expression), DUCKDB[expression]
    assert (found, type(found)) == (expected, type(expected))


def test_a_database_named_in_place_of_its_run_file_is_refused_with_advice() -> None:
    with pytest.raises(JobError, match="name the run file in place of the database"):
        status("postgresql://h/shop")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("postgresql://h/shop", "adbc_driver_postgresql", "rowmill[postgresql]"),
        ("duckdb:///a.db", "duckdb", "rowmill[duckdb]"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, module: str, extra: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.db").touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SourceError) as refused:
        open_database(database_url(url), "SELECT 1", None).columns()
    assert f"pip install '{extra}'" in str(refused.value)
