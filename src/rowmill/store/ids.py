"""Watches that a column of the input tells every row from every other, as an upsert's key has to, on disk."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence

from rowmill.core.names.databases import bad_ids
from rowmill.core.rows.chunks import KEY_BYTES, row_keys
from rowmill.errors import OutputError
from rowmill.ports import Chunk

NAMED_ROWS = 5
CACHE_KB = 16_384


def unique_ids(chunks: Iterator[Chunk], name: str) -> Iterator[Chunk]:
    """The chunks, as long as no row lacks a value of that column or has the same as one before.

    Raises OutputError at the first chunk where one does.  Memory is flat: what was seen is in a temporary file.
    """
    with contextlib.closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as seen:
        seen.execute("PRAGMA journal_mode = OFF")
        seen.execute("PRAGMA synchronous = OFF")
        seen.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        seen.execute("CREATE TABLE ids (key BLOB PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID")
        for chunk in chunks:
            _check_column(chunk, name)
            faults = chunk.faults
            cells = [(at, row.get(name)) for at, row in enumerate(chunk.values([name])) if at not in faults]
            missing = [chunk.indices[at] for at, cell in cells if cell is None]
            _check(seen, chunk, name, missing, [at for at, cell in cells if cell is not None])
            yield chunk


def _check_column(chunk: Chunk, name: str) -> None:
    if name not in chunk.columns and len(chunk.faults) < len(chunk):
        raise OutputError(f"--id: there is no column {name}; there are {', '.join(chunk.columns)}")


def _check(seen: sqlite3.Connection, chunk: Chunk, name: str, missing: Sequence[int], offsets: Sequence[int]) -> None:
    keys = row_keys(chunk, [name])
    found = [(keys[at * KEY_BYTES : (at + 1) * KEY_BYTES], chunk.indices[at]) for at in offsets]
    twice: list[tuple[int, int]] = []
    if not missing:
        with contextlib.suppress(sqlite3.IntegrityError):
            seen.execute("BEGIN")
            seen.executemany("INSERT INTO ids VALUES (?, ?)", found)
            seen.execute("COMMIT")
            return
        twice = _twice(seen, found)
    raise OutputError(bad_ids(name, missing[:NAMED_ROWS], twice))


def _twice(seen: sqlite3.Connection, found: Sequence[tuple[bytes, int]]) -> list[tuple[int, int]]:
    """The rows that have what a row before them has.  Without a journal the chunk's insertion is half there still."""
    first: dict[bytes, int] = {}
    pairs = []
    for key, row in found:
        before = seen.execute("SELECT row FROM ids WHERE key = ?", (key,)).fetchone()
        other = first.setdefault(key, row if before is None else min(row, before[0]))
        if other != row:
            pairs.append((other, row))
    return pairs[:NAMED_ROWS]
