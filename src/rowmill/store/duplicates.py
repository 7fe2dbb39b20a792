"""Rows with equal keys: the first is sent and leads, the others are written as its followers.

Each function is a task for the writer (see `Writer.submit`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from rowmill.store import meta

INSERT_FOLLOWER = """
INSERT OR REPLACE INTO rows (id, status, version, attempts, input_tokens, output_tokens, cost_usd, duplicate_of)
VALUES (?, 'duplicate', ?, 0, 0, 0, 0.0, ?)
"""


def follow(
    connection: sqlite3.Connection, keys: Sequence[tuple[bytes, int]], key_names: str, version: int
) -> frozenset[int]:
    """Makes leaders of rows (key, index) whose key is new and followers of the others; the followers' indices.

    `key_names` says what keys are made of: leaders by other keys are forgotten.
    """
    if meta.get(connection, "leader_keys") != key_names:
        connection.execute("DELETE FROM leaders")
        meta.put(connection, "leader_keys", key_names)
    connection.executemany("INSERT OR IGNORE INTO leaders VALUES (?, ?)", keys)
    followers = []
    for key, index in keys:
        (leader,) = connection.execute("SELECT id FROM leaders WHERE key = ?", (key,)).fetchone()
        if leader != index:
            followers.append((index, version, leader))
    connection.executemany(INSERT_FOLLOWER, followers)
    return frozenset(index for index, _, _ in followers)
