"""Matches a changed input with what is stored: by key and occurrence, on disk, in one transaction.

Runs in the writer's thread; nothing is sent for these rows before it is done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple

from rowmill.store.chunktable import StoredChunk, split_keys

TABLES = ("old_rows", "new_rows", "new_chunks", "moves", "returns", "moved_rows", "moved_attempts")


class Matched(NamedTuple):
    """What a matching did: rows of the input seen, finished ones found again, finished ones that left the input."""

    rows: int
    found: int
    left: int


def match(
    connection: sqlite3.Connection, first: int, first_chunk: int, chunks: Iterable[tuple[StoredChunk, bytes]]
) -> Matched:
    """Replaces the stored chunks from index `first` on by `chunks` and moves outcomes and attempts along.

    Each chunk comes with the keys to match by (they differ from its own where the prompt uses other columns than it
    did).
    """
    _drop(connection)
    connection.execute("CREATE TEMP TABLE old_rows (key BLOB, id INTEGER PRIMARY KEY, orphan INTEGER)")
    connection.execute("CREATE TEMP TABLE new_rows (key BLOB, id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TEMP TABLE new_chunks AS SELECT * FROM main.chunks WHERE 0")
    _collect_old(connection, first_chunk)
    rows = 0
    for chunk, keys in chunks:
        rows += chunk.row_count
        connection.execute("INSERT INTO temp.new_chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chunk)
        connection.executemany(
            "INSERT INTO temp.new_rows VALUES (?, ?)", zip(split_keys(keys), chunk.indices(), strict=True)
        )
    script = resources.files("rowmill.store").joinpath("matching.sql").read_text(encoding="utf-8")
    for statement in _statements(script):
        names = {"first": first, "first_chunk": first_chunk}
        connection.execute(statement, {k: v for k, v in names.items() if ":" + k in statement.split()} or ())
    (found,) = connection.execute("SELECT count(*) FROM temp.moved_rows WHERE new_id >= 0").fetchone()
    (left,) = connection.execute(
        "SELECT count(*) FROM temp.moved_rows AS m JOIN temp.moves AS v ON v.new_id = m.new_id "
        "WHERE m.new_id < 0 AND v.old_id >= 0"
    ).fetchone()
    _drop(connection)
    return Matched(rows, found, left)


def _collect_old(connection: sqlite3.Connection, first_chunk: int) -> None:
    connection.execute("INSERT INTO temp.old_rows SELECT key, id, 1 FROM main.rows WHERE id < 0")
    at = first_chunk
    while True:
        row = connection.execute("SELECT * FROM main.chunks WHERE id >= ? ORDER BY id LIMIT 1", (at,)).fetchone()
        if row is None:
            return
        chunk = StoredChunk(*row)
        connection.executemany(
            "INSERT INTO temp.old_rows VALUES (?, ?, 0)",
            zip(split_keys(chunk.keys), chunk.indices(), strict=True),
        )
        at = chunk.id + 1


def _statements(script: str) -> list[str]:
    bare = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return [statement for statement in bare.split(";") if statement.strip()]


def _drop(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
