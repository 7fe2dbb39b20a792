"""Inserts many rows by few statements; must not know what the rows mean.

One statement for many rows changes the interpreter's lock once, not once a row; with thousands of requests in flight it
takes milliseconds to get it back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

Row = tuple[Any, ...]  # of a table; an attempt's begins with its input row's index << 16

INSERT_ATTEMPT = """
INSERT INTO attempts (id, lane, sent_at, latency_s, kind, status_code, packed, body, error, request_id,
                      input_tokens, output_tokens, cost_usd)
VALUES """
FIRST_VALUES = "(? + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
NEXT_VALUES = """(coalesce((SELECT max(id) FROM attempts WHERE id > ? AND id < ?), ?) + 1,
                  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_OUTCOME = """
INSERT OR REPLACE INTO rows (id, status, version, lane, attempts, answer, error, latency_s, input_tokens,
                             output_tokens, cost_usd, reasoning, duplicate_of)
VALUES """
OUTCOME_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
STATEMENT_ROWS = (256, 64, 16, 4, 1)  # few sizes, so that sqlite3 keeps their statements compiled


def insert_attempts(connection: sqlite3.Connection, rows: Sequence[Row], are_first: Sequence[bool]) -> None:
    """A row's first attempt has a known id; where that is taken, and for others, the next one is looked up."""
    firsts: list[Row] = []
    later: list[Row] = []
    for row, is_first in zip(rows, are_first, strict=True):
        (firsts if is_first else later).append(row)
    for part in _parts(firsts):
        try:
            _insert(connection, INSERT_ATTEMPT, FIRST_VALUES, part)
        except sqlite3.IntegrityError:  # undone as a whole; a row that is asked for anew has attempts already
            later = [*part, *later]
    # Rows of one statement do not see each other, so attempts of one row go one by one.
    repeated = len({row[0] for row in later}) < len(later)
    for part in _parts([(row[0], row[0] + 65536, *row) for row in later], (1,) if repeated else STATEMENT_ROWS):
        _insert(connection, INSERT_ATTEMPT, NEXT_VALUES, part)


def insert_outcomes(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Each in place of what the row had before."""
    for part in _parts(rows):
        _insert(connection, INSERT_OUTCOME, OUTCOME_VALUES, part)


def _insert(connection: sqlite3.Connection, head: str, values: str, rows: Sequence[Row]) -> None:
    connection.execute(head + ", ".join([values] * len(rows)), list(chain.from_iterable(rows)))


def _parts(rows: Sequence[Row], sizes: Sequence[int] = STATEMENT_ROWS) -> Iterator[Sequence[Row]]:
    """Parts of these sizes (falling, to 1), in the order of ids, or pages are split all over and stay half empty."""
    ordered = sorted(rows, key=itemgetter(0))
    start = 0
    for size in sizes:
        while len(ordered) - start >= size:
            yield ordered[start : start + size]
            start += size
