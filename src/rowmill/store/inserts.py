"""Inserts many rows by few statements; must not know what the rows mean.

Each statement gives the interpreter's lock away three times, and with thousands of requests in flight somebody else
takes it every time.  So hundreds of rows go in one, and what is left over does not go row by row but is padded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, compress
from operator import itemgetter, not_
from typing import Any

Row = tuple[Any, ...]  # of a table; an attempt's begins with its input row's index << 16

COLUMNS = 13  # of both tables
STATEMENT_ROWS = 512
UNSTORABLE = (OverflowError, ValueError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
PADDING: Row = (None, *[0] * (COLUMNS - 1))

INSERT_ATTEMPT = """
INSERT INTO attempts (id, lane, sent_at, latency_s, kind, status_code, packed, body, error, request_id,
                      input_tokens, output_tokens, cost_usd)
"""
FIRST_ID = "column1 + 1"
NEXT_ID = "coalesce((SELECT max(id) FROM attempts WHERE id > column1 AND id < column1 + 65536), column1) + 1"
INSERT_OUTCOME = """
INSERT OR REPLACE INTO rows (id, status, version, lane, attempts, answer, error, latency_s, input_tokens,
                             output_tokens, cost_usd, reasoning, duplicate_of)
"""
OUTCOME_ID = "column1"


def storable(row: Row) -> Row:
    """The row without what SQLite cannot hold: whole numbers beyond 64 bits, halves of characters."""
    return tuple(_held(value) for value in row)


def _held(value: Any) -> Any:
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def insert_attempts(connection: sqlite3.Connection, rows: Sequence[Row], are_first: Sequence[bool]) -> None:
    """A row's first attempt has a known id; where that is taken, and for others, the next one is looked up."""
    firsts = list(compress(rows, are_first))
    later = [] if len(firsts) == len(rows) else list(compress(rows, map(not_, are_first)))
    for part in _parts(firsts):
        try:
            _insert(connection, INSERT_ATTEMPT, FIRST_ID, part)
        except sqlite3.IntegrityError:  # undone as a whole; a row that is asked for anew has attempts already
            later = [*part, *later]
    # Rows of one statement do not see each other, so attempts of one row go one by one.
    repeated = len({row[0] for row in later}) < len(later)
    for part in _parts(later, 1 if repeated else STATEMENT_ROWS):
        _insert(connection, INSERT_ATTEMPT, NEXT_ID, part)


def insert_outcomes(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Each in place of what the row had before."""
    for part in _parts(rows):
        _insert(connection, INSERT_OUTCOME, OUTCOME_ID, part)


def _parts(rows: Sequence[Row], most: int = STATEMENT_ROWS) -> Iterator[Sequence[Row]]:
    """Parts in the order of ids, or pages are split all over and stay half empty."""
    ordered = sorted(rows, key=itemgetter(0))
    for start in range(0, len(ordered), most):
        yield ordered[start : start + most]


def _insert(connection: sqlite3.Connection, head: str, id_of: str, rows: Sequence[Row]) -> None:
    size = 1 << (len(rows) - 1).bit_length()  # ten sizes, so that sqlite3 keeps their statements compiled
    values = list(chain.from_iterable(rows))
    values += PADDING * (size - len(rows))
    connection.execute(_statement(head, id_of, size), values)


@cache
def _statement(head: str, id_of: str, size: int) -> str:
    """Inserts `size` rows but those of the padding."""
    others = ", ".join(f"column{number}" for number in range(2, COLUMNS + 1))
    row = f"({', '.join('?' * COLUMNS)})"
    return f"{head}SELECT {id_of}, {others} FROM (VALUES {', '.join([row] * size)}) WHERE column1 IS NOT NULL"
