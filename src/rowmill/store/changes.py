"""What a start of a run changes in the run file before any row is sent: versions, requeued rows, the stored job.

Each function is a task for the writer (see `Writer.submit`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from rowmill.store import meta
from rowmill.store.history import readable_lanes

FALLEN = "'fallback', 'invalid', 'refused', 'truncated', 'filtered'"  # what a fallback may stand in for


def remember_job(connection: sqlite3.Connection, job: str, definition: Mapping[str, Any]) -> None:
    """Stores the job, from which `retry` and `export` go on, and what it sends besides the rows."""
    meta.put(connection, "job", job)
    meta.put(connection, "definition", json.dumps(definition, ensure_ascii=False, sort_keys=True))


def remember_files(connection: sqlite3.Connection, files: str) -> None:
    """Stores which files the job was read from."""
    meta.put(connection, "files", files)


def version_id(
    connection: sqlite3.Connection,
    fingerprint: str,
    model: str,
    definition: Mapping[str, Any],
    *,
    accepted: bool,
) -> int:
    """The id of a version, which is made if it is new; `accepted` is for a new one, one that is known stays as it is.

    So the job's own version is not accepted for ever by a `retry` that changes nothing.
    """
    connection.execute(
        "INSERT INTO versions (fingerprint, model, definition, accepted) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (fingerprint, model) DO NOTHING",
        (fingerprint, model, json.dumps(definition, ensure_ascii=False, sort_keys=True), int(accepted)),
    )
    (number,) = connection.execute(
        "SELECT id FROM versions WHERE fingerprint = ? AND model = ?", (fingerprint, model)
    ).fetchone()
    return int(number)


def accept_versions(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Finished rows of these versions stay finished."""
    connection.executemany("UPDATE versions SET accepted = 1 WHERE id = ?", [(number,) for number in ids])


def forget_acceptance(connection: sqlite3.Connection) -> None:
    """What was accepted was accepted for another job."""
    connection.execute("UPDATE versions SET accepted = 0")


def send_again_by_version(connection: sqlite3.Connection, ids: Sequence[int]) -> int:
    """Makes the finished rows of these versions pending; how many."""
    return sum(
        connection.execute("UPDATE rows SET requeued = 1 WHERE id >= 0 AND version = ?", (number,)).rowcount
        for number in ids
    )


def read_again_by_version(connection: sqlite3.Connection, ids: Sequence[int]) -> int:
    """Has the stored replies of these versions' answered and invalid rows read again; how many."""
    return sum(
        _read_again(connection, "version = ? AND status IN ('ok', 'invalid', 'fallback')", (number,)) for number in ids
    )


def keep_unreadable(connection: sqlite3.Connection, versions: Mapping[str, int]) -> None:
    """Leaves rows as they ended whose reply was to be read again and cannot be: its endpoint is no longer the job's."""
    lanes = ", ".join(map(str, readable_lanes(connection, versions))) or "NULL"
    connection.execute(
        "UPDATE rows SET requeued = 0 WHERE requeued = 2 AND NOT EXISTS "
        "(SELECT 1 FROM attempts AS a WHERE a.id > rows.id << 16 AND a.id < (rows.id + 1) << 16 "
        f" AND a.body IS NOT NULL AND a.status_code < 300 AND a.lane IN ({lanes}))"
    )


def _read_again(connection: sqlite3.Connection, which: str, values: Sequence[object]) -> int:
    return connection.execute(
        f"UPDATE rows SET requeued = 2 WHERE id >= 0 AND requeued = 0 AND {which} AND EXISTS "
        "(SELECT 1 FROM attempts AS a WHERE a.id > rows.id << 16 AND a.id < (rows.id + 1) << 16 "
        " AND a.body IS NOT NULL AND a.status_code < 300)",
        tuple(values),
    ).rowcount


def apply_fallback(connection: sqlite3.Connection, fallback: str) -> int:
    """Where the fallback (as text, empty for none) is not the one that rows ended under, has the stored replies of
    rows read again that it may concern; how many.  Nothing is sent for them.
    """
    if (meta.get(connection, "fallback") or "") == fallback:
        return 0
    meta.put(connection, "fallback", fallback)
    return _read_again(connection, f"status IN ({FALLEN})", ())


def send_again_by_status(connection: sqlite3.Connection, statuses: Sequence[str]) -> int:
    """Makes rows that ended so pending; how many."""
    marks = ", ".join("?" * len(statuses))
    return connection.execute(
        f"UPDATE rows SET requeued = 1 WHERE id >= 0 AND requeued = 0 AND status IN ({marks})",
        tuple(statuses),
    ).rowcount


def try_unsent_again(connection: sqlite3.Connection, current: Sequence[int]) -> int:
    """Makes rows pending that ended without being sent under another version; they cost nothing.  How many."""
    marks = ", ".join("?" * len(current))
    return connection.execute(
        f"UPDATE rows SET requeued = 1 WHERE id >= 0 AND attempts = 0 AND version NOT IN ({marks}) "
        "AND requeued = 0 AND status <> 'duplicate'",
        tuple(current),
    ).rowcount


def apply_empty(connection: sqlite3.Connection, empty: str) -> None:
    """Where empty rows are treated in another way than when rows ended, decides again about all that was not sent."""
    before = meta.get(connection, "empty")
    meta.put(connection, "empty", empty)
    if before not in (None, empty):
        connection.execute("UPDATE rows SET requeued = 1 WHERE id >= 0 AND attempts = 0 AND status <> 'duplicate'")


def begin_sample(connection: sqlite3.Connection) -> None:
    """What comes into the run file next is a pilot's sample of the input."""
    meta.put(connection, "sampled", "1")


def end_input(connection: sqlite3.Connection) -> None:
    """What was read as a sample is all that the input has."""
    meta.put(connection, "complete", "1")


def take_over_sample(connection: sqlite3.Connection) -> bool:
    """The whole input comes next; whether what is stored so far is a sample."""
    was_sampled = meta.get(connection, "sampled") == "1"
    if was_sampled:
        meta.put(connection, "sampled", "0")
        meta.put(connection, "complete", "0")
    return was_sampled


def choose_rows(connection: sqlite3.Connection, choice: str) -> bool:
    """Notes how the rows that come in next were chosen; whether those stored so far were chosen in another way."""
    before = meta.get(connection, "choice")
    meta.put(connection, "choice", choice)
    return before is not None and before != choice


def remember_written(connection: sqlite3.Connection, fingerprint: str, accuracy: str) -> None:
    """Notes that the output stands as this run file would write it, and what its answers were worth.

    `fingerprint` is the output's; any change of rows takes it away.
    """
    meta.put(connection, "written", fingerprint)
    meta.put(connection, "accuracy", accuracy)


def remember_left(connection: sqlite3.Connection, stamps: str) -> None:
    """Notes what the files looked like that the run has written."""
    meta.put(connection, "left", stamps)


def remember_table(connection: sqlite3.Connection, marks: str) -> None:
    """Notes what was written, or is about to be, into a table of a database."""
    meta.put(connection, "table", marks)
