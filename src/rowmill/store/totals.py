"""What a run file adds up to: rows by status, and what all sessions have sent and spent."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

COUNTS = """
SELECT coalesce(d.status, r.status), count(*) FROM rows AS r LEFT JOIN rows AS d ON d.id = r.duplicate_of
WHERE r.id >= 0 AND r.requeued = 0 AND (r.duplicate_of IS NULL OR d.requeued = 0) GROUP BY 1
"""
SUMS = """
SELECT status, count(*), count(reasoning), count(duplicate_of) FROM rows WHERE id >= 0 AND requeued = 0 GROUP BY status
"""


class Session(NamedTuple):
    """One start of a run on this file; the fields are the columns of the table sessions."""

    id: int
    started: float
    updated: float
    ended: float | None
    reason: str | None
    peak_in_flight: int
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unknown_costs: int
    unconfirmed_usd: float
    latencies: Mapping[int, int]
    snapshot: Mapping[str, Any]


SESSIONS = f"SELECT {', '.join(Session._fields)} FROM sessions ORDER BY id"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over finished rows and over all sessions.

    `known_usd` is what attempts of known cost have cost, `unknown_costs` counts the others and `unconfirmed_usd` is
    the worst case of those.  `reasoning` and `duplicates`: whether any row has reasoning, or is a duplicate.
    """

    counts: Mapping[str, int]
    known_usd: float
    unknown_costs: int
    unconfirmed_usd: float
    requests: int
    input_tokens: int
    output_tokens: int
    latencies: Mapping[int, int]
    reasoning: bool
    duplicates: bool

    @property
    def cost_usd(self) -> float | None:
        """What all attempts have cost; None when that of one is unknown."""
        return None if self.unknown_costs else self.known_usd


class RowCounts(NamedTuple):
    """Finished rows by status; whether any has reasoning, and whether any is a duplicate."""

    by_status: dict[str, int]
    reasoning: bool
    duplicates: bool


def count_rows(connection: sqlite3.Connection) -> RowCounts:
    """Counts the finished rows of the input."""
    found = connection.execute(SUMS).fetchall()
    by_status = {status: rows for status, rows, _, _ in found}
    duplicates = any(followers for _, _, _, followers in found)
    if duplicates:  # whose status is that of the row they follow
        by_status = dict(connection.execute(COUNTS).fetchall())
    return RowCounts(by_status, any(reasoning for _, _, reasoning, _ in found), duplicates)


def read_sessions(connection: sqlite3.Connection) -> list[Session]:
    """All sessions, oldest first."""
    return [_session(dict(zip(Session._fields, row, strict=True))) for row in connection.execute(SESSIONS)]


def _session(columns: Mapping[str, Any]) -> Session:
    latencies = {int(bucket): number for bucket, number in json.loads(columns["latencies"]).items()}
    return Session(**{**columns, "latencies": latencies, "snapshot": json.loads(columns["snapshot"])})


def total_of(rows: RowCounts, sessions: Sequence[Session]) -> Totals:
    """Sums up."""
    latencies: dict[int, int] = {}
    for session in sessions:
        for bucket, number in session.latencies.items():
            latencies[bucket] = latencies.get(bucket, 0) + number
    return Totals(
        counts=rows.by_status,
        known_usd=sum(session.cost_usd for session in sessions),
        unknown_costs=sum(session.unknown_costs for session in sessions),
        unconfirmed_usd=sum(session.unconfirmed_usd for session in sessions),
        requests=sum(session.requests for session in sessions),
        input_tokens=sum(session.input_tokens for session in sessions),
        output_tokens=sum(session.output_tokens for session in sessions),
        latencies=latencies,
        reasoning=rows.reasoning,
        duplicates=rows.duplicates,
    )
