"""What a start of a run changes in the run file before any row is sent: versions, requeued rows, the stored job.

Each function is a task for the writer (see `Writer.submit`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from rowmill.store import meta


def remember_job(connection: sqlite3.Connection, job: str) -> None:
    """Stores the job, from which `retry` and `export` go on."""
    meta.put(connection, "job", job)


def version_id(
    connection: sqlite3.Connection,
    fingerprint: str,
    model: str,
    definition: Mapping[str, Any],
    *,
    accepted: bool,
) -> int:
    """The id of a version, which is made if it is new; `accepted` is only ever set, never taken away."""
    connection.execute(
        "INSERT INTO versions (fingerprint, model, definition, accepted) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (fingerprint, model) DO UPDATE SET accepted = max(accepted, excluded.accepted)",
        (fingerprint, model, json.dumps(definition, ensure_ascii=False, sort_keys=True), int(accepted)),
    )
    (number,) = connection.execute(
        "SELECT id FROM versions WHERE fingerprint = ? AND model = ?", (fingerprint, model)
    ).fetchone()
    return int(number)


def accept_versions(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Finished rows of these versions stay finished."""
    connection.executemany("UPDATE versions SET accepted = 1 WHERE id = ?", [(number,) for number in ids])


def send_again_by_version(connection: sqlite3.Connection, ids: Sequence[int]) -> int:
    """Makes the finished rows of these versions pending; how many."""
    return sum(
        connection.execute("UPDATE rows SET requeued = 1 WHERE id >= 0 AND version = ?", (number,)).rowcount
        for number in ids
    )


def read_again_by_version(connection: sqlite3.Connection, ids: Sequence[int]) -> int:
    """Has the stored replies of these versions' answered and invalid rows read again; how many."""
    return sum(
        connection.execute(
            "UPDATE rows SET requeued = 2 WHERE id >= 0 AND version = ? AND status IN ('ok', 'invalid') AND EXISTS "
            "(SELECT 1 FROM attempts AS a WHERE a.id > rows.id << 16 AND a.id < (rows.id + 1) << 16 "
            " AND a.body IS NOT NULL AND a.status_code < 300)",
            (number,),
        ).rowcount
        for number in ids
    )


def send_again_by_status(connection: sqlite3.Connection, statuses: Sequence[str]) -> int:
    """Makes rows that ended so pending; how many."""
    marks = ", ".join("?" * len(statuses))
    return connection.execute(
        f"UPDATE rows SET requeued = 1 WHERE id >= 0 AND requeued = 0 AND status IN ({marks})",
        tuple(statuses),
    ).rowcount


def try_unsent_again(connection: sqlite3.Connection, current: Sequence[int]) -> int:
    """Makes rows pending that failed without being sent under another version; they cost nothing.  How many."""
    marks = ", ".join("?" * len(current))
    return connection.execute(
        f"UPDATE rows SET requeued = 1 WHERE id >= 0 AND attempts = 0 AND version NOT IN ({marks}) "
        "AND requeued = 0 AND status <> 'skipped'",
        tuple(current),
    ).rowcount


def leave_input_open(connection: sqlite3.Connection) -> None:
    """Notes that more input may follow what is stored."""
    meta.put(connection, "complete", "0")


def remember_written(connection: sqlite3.Connection, seal: str) -> None:
    """Notes that the output stands as this run file would write it; any change of rows takes the note away."""
    meta.put(connection, "written", seal)
