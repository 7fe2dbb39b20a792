"""Owns what a query gives in a SQLite file; must not know other databases.

Any cell of a column may hold any kind of value there, so the rows are cells and not typed columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rowmill.core.names.databases import DatabaseUrl
from rowmill.core.rows.chunks import CellChunk
from rowmill.io.drivers import sqlite
from rowmill.io.sources.lines import cut
from rowmill.ports import Chunk
from rowmill.records import Fault

_EXCERPT_CHARACTERS = 300


class _NoText(bytes):
    """A text cell whose bytes are not UTF-8."""


class SqliteReader:
    """Runs one query; see `QueryReader`."""

    def __init__(self, url: DatabaseUrl, query: str) -> None:
        self._url = url
        self._query = query

    def columns(self) -> Sequence[str]:
        """The names that the query gives."""
        with sqlite.translated(self._url), contextlib.closing(self._connect()) as connection:
            return _names(sqlite.execute(connection, self._query))

    def chunks(self) -> Iterator[Chunk]:
        """All its rows."""
        with sqlite.translated(self._url), contextlib.closing(self._connect()) as connection:
            cursor = sqlite.execute(connection, self._query)
            names = tuple(_names(cursor))
            yield from cut(
                _measured(cursor, names), 0, lambda indices, rows, faults: CellChunk(indices, names, rows, faults)
            )

    def _connect(self) -> Any:
        connection = sqlite.connect(self._url, reading=True)
        connection.text_factory = _text
        return connection


def _names(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _text(content: bytes) -> str | _NoText:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _NoText(content)


def _measured(cursor: Any, names: Sequence[str]) -> Iterator[tuple[Sequence[Any], int, Fault | None]]:
    """Each row with its size in bytes, or with the fault that makes it none."""
    for number, row in enumerate(cursor, 1):
        size_bytes, bad = 0, None
        for index, cell in enumerate(row):
            if type(cell) is str or type(cell) is bytes:
                size_bytes += len(cell)
            elif type(cell) is _NoText:
                bad = index
        if bad is None:
            yield row, size_bytes, None
        else:
            excerpt = row[bad].decode("utf-8", "backslashreplace")[:_EXCERPT_CHARACTERS]
            yield (), size_bytes, Fault(number, f"the text in column {names[bad]} is not valid UTF-8", excerpt)
