"""Owns a table in PostgreSQL: types, COPY into a temporary table, catalogue; must not know what is written why."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rowmill.core.names.databases import DatabaseUrl, Table
from rowmill.core.rows.outputs import mark_of
from rowmill.io.drivers.postgresql import PostgresqlConnection
from rowmill.io.sinks.database import STAGE
from rowmill.io.sinks.fitting import fitted, is_scalar

if TYPE_CHECKING:
    import pyarrow as pa

LOCK_TIMEOUT = "30s"
_TEXT = "text"
_MARKED = {"json": "jsonb", "uuid": "uuid", "numeric": "numeric"}


class PostgresqlDialect:
    """See `Dialect`.  All is one transaction, from the temporary table to the commit."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._connection = PostgresqlConnection(url)
        self._connection.open()

    def types_of(self, field: pa.Field) -> tuple[str, str]:
        """What the driver's COPY writes, and what a table should have."""
        staged = _type_name(field.type)
        return staged, _MARKED.get(mark_of(field) or _implied(field.type) or "", staged)

    def make_stage(self, columns: str) -> None:
        """A temporary table that goes with the transaction."""
        self._connection.execute(f"CREATE TEMPORARY TABLE {STAGE} ({columns}) ON COMMIT DROP")

    def load(self, table: pa.Table) -> None:
        """Binary COPY."""
        self._connection.ingest(STAGE, fitted(table, _fits, without_nul=True))

    def begin(self) -> None:
        """Tells the planner how large the temporary table is, and not to wait for a lock for ever."""
        self._connection.execute(f"ANALYZE {STAGE}")
        self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")

    def columns(self, table: Table) -> Mapping[str, str] | None:
        """From the catalogue."""
        name = table.quoted.replace("'", "''")
        found = self._connection.rows(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = to_regclass('{name}') AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return {str(name): str(kind) for name, kind in found} or None

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """What a small query gives."""
        return self._connection.rows(sql)

    def emptied(self, table: Table) -> str:
        """TRUNCATE: a reader waits until the commit."""
        return f"TRUNCATE {table.quoted}"

    def assigned(self, column: str, staged: str, kept: str) -> str:
        """An assignment refuses what does not fit; text has to be cast where it stands for something else."""
        texts = (_TEXT, f"{_TEXT}[]")
        if staged in texts and kept != staged and not kept.startswith("character"):
            return f"CAST({column} AS {kept})"
        return column

    def compared(self, column: str, staged: str, kept: str) -> str:
        """Cast where the types differ; to text for `varchar(n)`, which would cut it."""
        return column if staged == kept else f"CAST({column} AS {_TEXT if kept.startswith('character') else kept})"

    def matching(self, table: Table, id: str) -> AbstractContextManager[object]:
        """It joins by hashing."""
        return contextlib.nullcontext()

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def _fits(kind: pa.DataType) -> pa.DataType | None:
    """The type in which the driver writes a column exactly; None for one that becomes JSON."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _fits(kind.value_type)
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        items = _fits(kind.value_type) if is_scalar(kind.value_type) else None
        return None if items is None else pa.list_(items)
    return kind if is_scalar(kind) else None


def _implied(kind: pa.DataType) -> str | None:
    return "json" if _fits(kind) is None else None


def _type_name(kind: pa.DataType) -> str:
    """As `format_type` calls it."""
    import pyarrow as pa

    found = _fits(kind)
    if found is None:
        return _TEXT
    types = pa.types
    if types.is_list(found):
        return f"{_type_name(found.value_type)}[]"
    if types.is_decimal(found):
        return f"numeric({found.precision},{found.scale})" if 0 <= found.scale <= found.precision else "numeric"
    if types.is_timestamp(found):
        return "timestamp with time zone" if found.tz else "timestamp without time zone"
    named = (
        (types.is_boolean, "boolean"),
        (lambda k: k in (pa.int8(), pa.uint8(), pa.int16()), "smallint"),
        (lambda k: k in (pa.uint16(), pa.int32()), "integer"),
        (types.is_integer, "bigint"),
        (types.is_float64, "double precision"),
        (types.is_floating, "real"),
        (types.is_date, "date"),
        (types.is_time, "time without time zone"),
        (lambda k: types.is_duration(k) or types.is_interval(k), "interval"),
        (lambda k: types.is_binary(k) or types.is_large_binary(k) or types.is_fixed_size_binary(k), "bytea"),
        (types.is_binary_view, "bytea"),
    )
    return next((name for fits, name in named if fits(found)), _TEXT)
