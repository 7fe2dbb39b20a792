"""Matches a changed input with what is stored: by key and occurrence, on disk, in one transaction.

Runs in the writer's thread; nothing is sent for these rows before it is done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib import resources
from typing import Any, NamedTuple

from rowmill.store.chunktable import StoredChunk, split_keys

TABLES = ("old_rows", "new_rows", "moves", "returns", "moved_rows", "moved_attempts")


class Matched(NamedTuple):
    """What a matching did: rows of the input seen, finished ones found again, finished ones that left the input."""

    rows: int
    found: int
    left: int


def match(connection: sqlite3.Connection, first: int) -> Matched:
    """Puts next_chunks in the place of the stored chunks from index `first` on; outcomes and attempts go along."""
    _drop(connection)
    connection.execute("CREATE TEMP TABLE old_rows (key BLOB, id INTEGER PRIMARY KEY, orphan INTEGER)")
    connection.execute("CREATE TEMP TABLE new_rows (key BLOB, id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO temp.old_rows SELECT key, id, 1 FROM main.rows WHERE id < 0")
    for row in _each(connection, "chunks", first):
        chunk = StoredChunk(*row)
        connection.executemany(
            "INSERT INTO temp.old_rows VALUES (?, ?, 0)", zip(split_keys(chunk.keys), chunk.indices(), strict=True)
        )
    rows = 0
    for row in _each(connection, "next_chunks", first):
        chunk, match_keys = StoredChunk(*row[:-1]), row[-1]
        rows += chunk.row_count
        keys = split_keys(chunk.keys if match_keys is None else match_keys)
        connection.executemany("INSERT INTO temp.new_rows VALUES (?, ?)", zip(keys, chunk.indices(), strict=True))
    script = resources.files("rowmill.store").joinpath("matching.sql").read_text(encoding="utf-8")
    for statement in _statements(script):
        connection.execute(statement, {"first": first} if ":first" in statement.split() else ())
    (found,) = connection.execute("SELECT count(*) FROM temp.moved_rows WHERE new_id >= 0").fetchone()
    (left,) = connection.execute(
        "SELECT count(*) FROM temp.moved_rows AS m JOIN temp.moves AS v ON v.new_id = m.new_id "
        "WHERE m.new_id < 0 AND v.old_id >= 0"
    ).fetchone()
    _drop(connection)
    return Matched(rows, found, left)


def _each(connection: sqlite3.Connection, table: str, first: int) -> Iterator[tuple[Any, ...]]:
    """The table's rows from the id `first` on, one at a time."""
    at = first
    while True:
        row = connection.execute(f"SELECT * FROM main.{table} WHERE id >= ? ORDER BY id LIMIT 1", (at,)).fetchone()
        if row is None:
            return
        yield row
        at = row[0] + 1


def _statements(script: str) -> list[str]:
    bare = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return [statement for statement in bare.split(";") if statement.strip()]


def _drop(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
