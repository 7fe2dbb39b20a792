"""Owns a table in a DuckDB file: types, Arrow into a temporary table, catalogue; must not know what is written why."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.core.names.databases import DatabaseUrl, Table
from rowmill.core.rows.outputs import mark_of
from rowmill.io.drivers import duckdb
from rowmill.io.drivers.waiting import awaited
from rowmill.io.sinks.database import STAGE
from rowmill.io.sinks.fitting import fitted

if TYPE_CHECKING:
    import pyarrow as pa

_MARKED = {"json": "JSON", "uuid": "UUID"}
_MOST_DIGITS = 38


class DuckdbDialect:
    """See `Dialect`.  A file that was not there is taken away again unless something was committed."""

    def __init__(self, url: DatabaseUrl) -> None:
        path = Path(url.path)
        self._new_file = None if path.exists() else path
        self._connection = duckdb.connect(url, reading=False)
        self.execute("SET TimeZone = 'UTC'")

    def types_of(self, field: pa.Field) -> tuple[str, str]:
        """What DuckDB makes of the Arrow type, and of a text that stands for more."""
        with duckdb.translated():
            empty = fitted(_empty(field), _fits)
            [staged] = self._connection.from_arrow(empty).types
        return str(staged), _MARKED.get(mark_of(field) or "", str(staged))

    def make_stage(self, columns: str) -> None:
        """A temporary table; what does not fit into memory goes to DuckDB's temporary files."""
        self.execute(f"CREATE TEMPORARY TABLE {STAGE} ({columns})")

    def load(self, table: pa.Table) -> None:
        """Straight from Arrow."""
        with duckdb.translated():
            self._connection.from_arrow(fitted(table, _fits)).insert_into(STAGE)

    def begin(self) -> None:
        self.execute("BEGIN TRANSACTION")

    def columns(self, table: Table) -> Mapping[str, str] | None:
        """From the catalogue."""
        *schema, name = (part.replace("'", "''") for part in table.parts)
        in_schema = f"'{schema[-1]}'" if schema else "current_schema()"
        found = self.rows(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_catalog = current_database() "
            f"AND table_schema = {in_schema} AND table_name = '{name}' ORDER BY ordinal_position"
        )
        return dict(found) or None

    def execute(self, sql: str) -> None:
        with duckdb.translated():
            awaited(lambda: self._connection.execute(sql), self._connection.interrupt)

    def rows(self, sql: str) -> Sequence[Any]:
        """What a small query gives."""
        with duckdb.translated():
            return awaited(lambda: self._connection.execute(sql).fetchall(), self._connection.interrupt)

    def emptied(self, table: Table) -> str:
        return f"DELETE FROM {table.quoted}"

    def assigned(self, column: str, staged: str, kept: str) -> str:
        """Text is cast where it stands for something else; DuckDB casts the rest by itself."""
        return f"CAST({column} AS {kept})" if staged == "VARCHAR" and kept != staged else column

    def compared(self, column: str, staged: str, kept: str) -> str:
        """Cast where the types differ."""
        return column if staged == kept else f"CAST({column} AS {kept})"

    def matching(self, table: Table, id: str) -> AbstractContextManager[object]:
        """It joins by hashing."""
        return contextlib.nullcontext()

    def commit(self) -> None:
        self.execute("COMMIT")
        self._new_file = None

    def close(self) -> None:
        with contextlib.suppress(Exception):  # closing undoes what is not committed; it has nothing new to say
            self._connection.close()
        if self._new_file is not None:
            self._new_file.unlink(missing_ok=True)
            Path(f"{self._new_file}.wal").unlink(missing_ok=True)


def _empty(field: pa.Field) -> pa.Table:
    import pyarrow as pa

    return pa.schema([field]).empty_table()


def _fits(kind: pa.DataType) -> pa.DataType | None:
    """The type in which DuckDB takes a column exactly; it holds nested ones as they are."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= _MOST_DIGITS else pa.string()
    return kind
