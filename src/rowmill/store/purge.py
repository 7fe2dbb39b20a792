"""Takes inputs and replies out of a run file, so that their bytes are in it no more; statuses and answers stay."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rowmill.core.rows.chunks import ObjectChunk
from rowmill.errors import LockedError
from rowmill.store import chunktable, meta
from rowmill.store import connection as connections
from rowmill.store.packing import DamagedError, Packer, Unpacker

ANSWERS_AT_ONCE = 1_000
READERS_MS = 2_000  # `status` and the like are gone by then
# What a server said, or an excerpt of the reply, may be in any error: which kind of failure it was is all that stays.
FORGET_ERRORS = """
UPDATE rows SET reasoning = NULL, key = NULL, error = CASE WHEN error IS NULL THEN NULL ELSE coalesce(
    (SELECT kind FROM attempts WHERE attempts.id > rows.id << 16 AND attempts.id < (rows.id + 1) << 16
     ORDER BY attempts.id DESC LIMIT 1), nullif(status, 'duplicate'), 'failed') || ' (its words were purged)' END
"""
FORGET = (
    FORGET_ERRORS,
    "UPDATE attempts SET body = NULL, packed = 0, error = NULL",
    "DELETE FROM leaders",
    "DELETE FROM next_chunks",
    "DELETE FROM meta WHERE name IN ('dictionary', 'accuracy')",
)
KEPT_OF_SNAPSHOT = ("total", "rows_per_s", "eta_s", "lanes")


def purge(path: Path, when: str) -> None:
    """The caller holds the lock.  May be called again, where it was broken off.

    Raises LockedError where another program reads, which keeps old bytes in SQLite's log.
    """
    with connections.translated(path), closing(connections.writer(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("BEGIN IMMEDIATE")
        _forget(connection, path, when)
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        connection.execute(f"PRAGMA busy_timeout = {READERS_MS}")
        is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise LockedError(
            f"{path} is being read by another program, which keeps what was purged in its log; "
            "wait for it to end, then run the same command again"
        )


def _forget(connection: sqlite3.Connection, path: Path, when: str) -> None:
    _unpack_answers(connection, path)  # the dictionary is made of replies
    _empty_chunks(connection)
    for statement in FORGET:
        connection.execute(statement)
    for number, text in connection.execute("SELECT id, snapshot FROM sessions").fetchall():
        connection.execute("UPDATE sessions SET snapshot = ? WHERE id = ?", (_without_words(text), number))
    meta.put_columns(connection, ())
    meta.put(connection, "purged", when)


def _unpack_answers(connection: sqlite3.Connection, path: Path) -> None:
    unpacker = Unpacker(lambda: meta.dictionary(connection))
    lowest: int | None = None
    while found := _answers_from(connection, lowest):
        ids = [number for number, _ in found]
        try:
            answers = unpacker.answers([answer for _, answer in found])
        except DamagedError as error:
            row = ids[error.position]
            raise sqlite3.DatabaseError(f"the answer of row {row} cannot be read: {error}") from None
        connection.executemany("UPDATE rows SET answer = ? WHERE id = ?", zip(answers, ids, strict=True))
        lowest = ids[-1] + 1


def _answers_from(connection: sqlite3.Connection, lowest: int | None) -> Sequence[tuple[int, bytes]]:
    at_least = "" if lowest is None else f"AND id >= {lowest}"
    return connection.execute(
        f"SELECT id, answer FROM rows WHERE answer IS NOT NULL {at_least} ORDER BY id LIMIT {ANSWERS_AT_ONCE}"
    ).fetchall()


def _empty_chunks(connection: sqlite3.Connection) -> None:
    """As many rows, at the same indices, of which nothing is known."""
    packer, after = Packer(), -1
    while (stored := chunktable.next_chunk(connection, after)) is not None:
        after = stored.id
        indices = array("Q", stored.indices())
        empty = chunktable.store_chunk(
            ObjectChunk(indices, [{}] * len(indices)), bytes(chunktable.KEY_BYTES * len(indices)), "[]", packer
        )
        connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", empty)


def _without_words(snapshot: str) -> str:
    """How a session stood, in numbers; why a lane waited may quote its server."""
    found = json.loads(snapshot)
    kept = {name: found[name] for name in KEPT_OF_SNAPSHOT if name in found}
    kept["lanes"] = [{**lane, "why": None} for lane in kept.get("lanes", ())]
    return json.dumps(kept)
