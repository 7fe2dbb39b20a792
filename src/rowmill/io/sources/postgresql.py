"""Owns what a query gives in PostgreSQL, types exact; must not know other databases.

Rows are streamed by a binary COPY within a read-only transaction.  What Arrow does not hold as it is comes as
PostgreSQL writes it; what would come changed (an infinite date, an array of several dimensions) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.core.names.databases import DatabaseUrl, quoted
from rowmill.core.rows.outputs import marked
from rowmill.errors import DatabaseError
from rowmill.io.drivers.postgresql import PostgresqlConnection
from rowmill.io.sources.database import arrow_chunks
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "bool")
_TEXTS = ("text", "varchar", "bpchar", "name", "char")
_MOMENTS = {"timestamptz": "timestamptz", "timestamp": "timestamp", "date": "date"}
_AS_THEY_ARE = (*_NUMBERS, *_TEXTS, "bytea", "time", "json", "jsonb", "numeric")
_ITEMS = (*_NUMBERS, "text", "varchar", "bytea", *_MOMENTS)
_MARKS = {"json": "json", "jsonb": "json", "uuid": "uuid"}
_MOST_DIGITS = 76


class PostgresqlReader:
    """Runs one query; see `QueryReader`."""

    def __init__(self, url: DatabaseUrl, query: str) -> None:
        self._url = url
        self._query = query

    def columns(self) -> Sequence[str]:
        """The names that the query would give."""
        with PostgresqlConnection(self._url) as connection:
            names: list[str] = connection.schema(self._query).names
            return names

    def chunks(self) -> Iterator[Chunk]:
        """All its rows."""
        with PostgresqlConnection(self._url) as connection:
            connection.execute("SET TRANSACTION READ ONLY")
            # Else a second scan of a large table may begin anywhere.
            connection.execute("SET LOCAL synchronize_seqscans = off")
            columns = [_Column(field) for field in connection.schema(self._query)]
            expressions = ", ".join(column.sql for column in columns)
            sql = f"SELECT {expressions} FROM (\n{self._query}\n) AS q"
            yield from arrow_chunks(_fitted(batch, columns) for batch in connection.batches(sql))


class _Column:
    """How one column is asked for, and what it becomes."""

    def __init__(self, field: pa.Field) -> None:
        metadata = field.metadata or {}
        kind = metadata.get(b"POSTGRESQL:type", b"").decode()
        self.name: str = field.name
        self.decimal = _decimal(int(metadata.get(b"POSTGRESQL:typmod", b"-1"))) if kind == "numeric" else None
        self.mark = _MARKS.get(kind, "numeric" if kind == "numeric" and self.decimal is None else None)
        self.sql = f"{_expression(quoted(field.name), kind)} AS {quoted(field.name)}"


def _expression(column: str, kind: str) -> str:
    if kind in _AS_THEY_ARE:
        return column
    if kind in _MOMENTS:
        # Arrow has no infinite moment.  The cast fails with the words that precede it; it is no constant, which would
        # be tried before any row is seen.
        words = _literal(f" is no moment in time: select column {column} as text, or where isfinite holds")
        return f"CASE WHEN isfinite({column}) IS NOT FALSE THEN {column} ELSE ({column}::text || {words})::{kind} END"
    if kind.startswith("_"):
        items = kind[1:] if kind[1:] in _ITEMS else "text"
        words = _literal(f" has several dimensions: select to_jsonb({column}) instead")
        return (
            f"CASE WHEN array_ndims({column}) > 1 THEN ({column}::text || {words})::{items}[] "
            f"ELSE {column}::{items}[] END"
        )
    return f"{column}::text"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _decimal(modifier: int) -> pa.DataType | None:
    """The type of `numeric(precision, scale)`; None for a `numeric` whose digits nothing bounds."""
    import pyarrow as pa

    if modifier < 0:
        return None
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if scale > precision or precision > _MOST_DIGITS:
        return None
    return (
        pa.decimal128(precision, scale) if precision <= pa.decimal128(38).precision else pa.decimal256(precision, scale)
    )


def _fitted(batch: pa.RecordBatch, columns: Sequence[_Column]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [_array(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    plain = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
    return marked(plain, [column.mark for column in columns])


def _array(array: Any, column: _Column) -> Any:
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))  # what the driver notes about the items goes
    if column.decimal is None:
        return array
    try:
        return array.cast(column.decimal)
    except pa.ArrowInvalid:
        raise DatabaseError(
            f"column {column.name} holds what is no number (NaN): select it as text, or leave those rows out"
        ) from None
