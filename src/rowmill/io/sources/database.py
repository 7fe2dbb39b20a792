"""Owns rows that a query gives: what every database's source promises; must not know any database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from rowmill.core.names.databases import DatabaseUrl, Kind, table
from rowmill.core.rows.chunks import ArrowChunk
from rowmill.errors import DatabaseError, SourceError
from rowmill.io.sources.arrow import pieces
from rowmill.io.sources.lines import BYTES_PER_CHUNK, ROWS_PER_CHUNK
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

_READERS: dict[Kind, str] = {
    "postgresql": "rowmill.io.sources.postgresql:PostgresqlReader",
    "sqlite": "rowmill.io.sources.sqlite:SqliteReader",
    "duckdb": "rowmill.io.sources.duckdb:DuckdbReader",
}


class QueryReader(Protocol):
    """Runs one query in one database; raises DatabaseError."""

    def columns(self) -> Sequence[str]:
        """The names that the query would give."""

    def chunks(self) -> Iterator[Chunk]:
        """All its rows, streamed; before an error those that came."""


class DatabaseSource:
    """The rows of a query; implements `ports.Source`.  The order is the query's, which may have none."""

    rereadable = True

    def __init__(self, url: DatabaseUrl, query: str | None, table_name: str | None) -> None:
        self.name = str(url)
        module, _, reader = _READERS[url.kind].partition(":")
        sql = query if query is not None else f"SELECT * FROM {table(table_name or '').quoted}"
        make: Any = getattr(import_module(module), reader)
        self._reader: QueryReader = make(url, sql.strip().rstrip(";").rstrip())

    def columns(self) -> Sequence[str]:
        """The query's columns.  Raises SourceError where the database or the query is wrong, or a name stands twice."""
        try:
            names = self._reader.columns()
        except DatabaseError as error:
            raise SourceError(f"{self.name} cannot be read: {error}") from None
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SourceError(f"the query gives more than one column named {', '.join(twice)}: rename all but one (AS)")
        return tuple(names)

    def size_hint(self) -> int | None:
        """Not known without counting."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """All rows.  Raises SourceError, also in the middle, when the connection breaks off."""
        self.columns()
        rows = 0
        try:
            for chunk in self._reader.chunks():
                rows += len(chunk)
                yield chunk
        except DatabaseError as error:
            what = f"reading {self.name} broke off after {rows:,} rows" if rows else f"{self.name} cannot be read"
            raise SourceError(f"{what}: {error}") from None


def arrow_chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    """Chunks of 1,000 rows, fewer where they are large, whatever the batches' sizes, so that a resumed run meets
    equal chunks.  Before an error come the rows before it.
    """
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    first = 0
    try:
        for batch in batches:
            waiting.append(batch)
            while sum(one.num_rows for one in waiting) >= ROWS_PER_CHUNK or _bytes_in(waiting) >= BYTES_PER_CHUNK:
                whole = pa.concat_batches(waiting)
                for piece in pieces(whole.slice(0, ROWS_PER_CHUNK)):
                    yield ArrowChunk(range(first, first + piece.num_rows), piece)
                    first += piece.num_rows
                rest = whole.slice(ROWS_PER_CHUNK)
                waiting = [rest] if rest.num_rows else []
    except DatabaseError:
        yield from _last(waiting, first)
        raise
    yield from _last(waiting, first)


def _last(waiting: Sequence[pa.RecordBatch], first: int) -> Iterator[Chunk]:
    import pyarrow as pa

    if any(batch.num_rows for batch in waiting):
        whole = pa.concat_batches(waiting)
        yield ArrowChunk(range(first, first + whole.num_rows), whole)


def _bytes_in(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(int(batch.nbytes) for batch in batches)
