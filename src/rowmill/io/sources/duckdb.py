"""Owns what a query gives in a DuckDB file, types exact; must not know other databases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rowmill.core.names.databases import DatabaseUrl, quoted
from rowmill.core.rows.outputs import marked
from rowmill.errors import DatabaseError
from rowmill.io.drivers import duckdb
from rowmill.io.drivers.waiting import awaited
from rowmill.io.sources.database import arrow_chunks
from rowmill.ports import Chunk

# What Arrow does not hold as it is comes as DuckDB writes it.
_AS_TEXT = ("TIME WITH TIME ZONE", "INTERVAL", "BIT", "BIGNUM", "VARINT", "UHUGEINT", "UNION", "GEOMETRY", "VARIANT")
_MARKS = {"JSON": "json", "UUID": "uuid"}


class DuckdbReader:
    """Runs one query; see `QueryReader`."""

    def __init__(self, url: DatabaseUrl, query: str) -> None:
        self._url = url
        self._query = query

    def columns(self) -> Sequence[str]:
        """The names that the query gives."""
        with self._connected() as connection:
            names: list[str] = self._relation(connection).columns
            return names

    def chunks(self) -> Iterator[Chunk]:
        """All its rows."""
        with self._connected() as connection:
            relation = self._relation(connection)
            kinds = [str(kind) for kind in relation.types]
            marks = [_MARKS.get(kind) for kind in kinds]
            relation = relation.project(", ".join(map(_column, relation.columns, kinds)))
            yield from arrow_chunks(marked(batch, marks) for batch in _batches(connection, relation))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        with duckdb.translated(), contextlib.closing(duckdb.connect(self._url, reading=True)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection

    def _relation(self, connection: Any) -> Any:
        relation = connection.sql(self._query)
        if relation is None:
            raise DatabaseError("the query gives no rows: it has to be a SELECT")
        return relation


def _batches(connection: Any, relation: Any) -> Iterator[Any]:
    reader = awaited(lambda: relation.to_arrow_reader(1_000), connection.interrupt)
    while (batch := awaited(lambda: next(reader, None), connection.interrupt)) is not None:
        yield batch


def _column(name: str, kind: str) -> str:
    if kind.startswith(_AS_TEXT):
        return f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}"
    return quoted(name)
