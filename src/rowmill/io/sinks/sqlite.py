"""Owns a table in a SQLite file: types, values, catalogue; must not know what is written why.

What SQLite has no type for is text: decimals and numbers beyond 64 bits with all digits, times as ISO 8601, what is
nested as JSON.  Booleans are 1 and 0.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rowmill.core.names.databases import DatabaseUrl, Table, quoted
from rowmill.core.rows.chunks import encode_json
from rowmill.core.rows.chunks.arrow import plain_values
from rowmill.io.drivers import sqlite
from rowmill.io.sinks.database import STAGE

if TYPE_CHECKING:
    import pyarrow as pa

_AS_THEY_ARE = frozenset({int, float, str, bytes, bool, type(None)})


class SqliteDialect:
    """See `Dialect`.  The temporary table is in a file of its own; the database is locked at the end only."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._connection = sqlite.connect(url, reading=False)
        self._in_stage = False

    def types_of(self, field: pa.Field) -> tuple[str, str]:
        """One declared type for both; SQLite keeps values as they are."""
        kind = _type_name(field.type)
        return kind, kind

    def make_stage(self, columns: str) -> None:
        """A temporary table, filled within one transaction."""
        self.execute("PRAGMA temp_store = FILE")
        self.execute(f"CREATE TEMPORARY TABLE {STAGE} ({columns})")
        self.execute("BEGIN")

    def load(self, table: pa.Table) -> None:
        """Row by row, in the library."""
        columns = [_values(column) for column in table.columns]
        holes = ", ".join("?" * len(columns))
        with sqlite.translated(self._url):
            self._connection.executemany(f"INSERT INTO temp.{STAGE} VALUES ({holes})", zip(*columns, strict=True))

    def begin(self) -> None:
        """Locks the database for writing."""
        self.execute("COMMIT")
        self.execute("BEGIN IMMEDIATE")

    def columns(self, table: Table) -> Mapping[str, str] | None:
        """Names and declared types."""
        *schema, name = map(quoted, table.parts)
        prefix = f"{schema[0]}." if schema else ""
        found = self.rows(f"PRAGMA {prefix}table_info({name})")
        return {row[1]: row[2] for row in found} or None

    def execute(self, sql: str) -> None:
        with sqlite.translated(self._url):
            sqlite.execute(self._connection, sql)

    def rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """What a small query gives."""
        with sqlite.translated(self._url):
            return sqlite.execute(self._connection, sql).fetchall()

    def emptied(self, table: Table) -> str:
        return f"DELETE FROM {table.quoted}"

    def assigned(self, column: str, staged: str, kept: str) -> str:
        """As it is: the column's affinity does what is to be done."""
        return column

    def compared(self, column: str, staged: str, kept: str) -> str:
        """As text with text, or no index would serve; SQLite compares the rest by affinity."""
        is_text = any(word in kept.upper() for word in ("CHAR", "CLOB", "TEXT"))
        return f"CAST({column} AS TEXT)" if is_text and staged != "TEXT" else column

    @contextlib.contextmanager
    def matching(self, table: Table, id: str) -> Iterator[None]:
        """Gives both an index for as long; which one serves depends on which of the columns holds numbers."""
        *schema, name = map(quoted, table.parts)
        index = f"{schema[0]}.{STAGE}_known" if schema else f"{STAGE}_known"
        self.execute(f"CREATE INDEX temp.{STAGE}_id ON {STAGE} ({quoted(id)})")
        self.execute(f"CREATE INDEX {index} ON {name} ({quoted(id)})")
        yield
        self.execute(f"DROP INDEX {index}")

    def commit(self) -> None:
        self.execute("COMMIT")

    def close(self) -> None:
        with contextlib.suppress(Exception):  # closing undoes what is not committed; it has nothing new to say
            self._connection.close()


def _type_name(kind: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if types.is_boolean(kind):
        return "BOOLEAN"
    if types.is_integer(kind):
        return "INTEGER" if kind != pa.uint64() else "TEXT"
    if types.is_floating(kind):
        return "REAL"
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return "BLOB" if is_bytes or types.is_binary_view(kind) else "TEXT"


def _values(column: pa.ChunkedArray) -> list[Any]:
    import pyarrow as pa

    values = [value for part in column.chunks for value in plain_values(part)]
    if column.type != pa.uint64() and set(map(type, values)) <= _AS_THEY_ARE:
        return values
    return [value if type(value) in _AS_THEY_ARE - {int} else _text(value) for value in values]


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    int: str,
    Decimal: lambda value: format(value, "f"),
    datetime.datetime: datetime.datetime.isoformat,
    datetime.date: datetime.date.isoformat,
    datetime.time: datetime.time.isoformat,
}


def _text(value: Any) -> str:
    write = _WRITERS.get(type(value))
    return write(value) if write is not None else encode_json(value).decode().strip('"')
