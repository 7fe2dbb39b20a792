"""Owns output rows in a database's table: staged first, visible all at once; must not know any database.

Rows go into a temporary table.  At the end one transaction makes or fills the final table from it, so that nobody ever
sees half an output, and a connection that breaks leaves the table as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from rowmill.core.names.databases import DatabaseUrl, Kind, Table, Target, WriteReceipt, bad_ids, listed, quoted
from rowmill.core.rows.outputs import Batch, OutputColumns, arrow_batch, arrow_schema
from rowmill.errors import DatabaseError, OutputError
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

STAGE = "rowmill_stage"
NAMED_ROWS = 5
_ROWS_PER_LOAD = 1 << 15
_BYTES_PER_LOAD = 16 << 20
_DIALECTS: dict[Kind, str] = {
    "postgresql": "rowmill.io.sinks.postgresql:PostgresqlDialect",
    "sqlite": "rowmill.io.sinks.sqlite:SqliteDialect",
    "duckdb": "rowmill.io.sinks.duckdb:DuckdbDialect",
}


class Dialect(Protocol):
    """One database, connected.  Raises DatabaseError."""

    def types_of(self, field: pa.Field) -> tuple[str, str]:
        """The types that a column has in the temporary table and in a table made for it."""

    def make_stage(self, columns: str) -> None:
        """Makes the temporary table."""

    def load(self, table: pa.Table) -> None:
        """Appends to the temporary table."""

    def begin(self) -> None:
        """Begins the transaction that ends with `commit`; the temporary table is full."""

    def columns(self, table: Table) -> Mapping[str, str] | None:
        """Names and types of a table's columns; None where it is not there."""

    def execute(self, sql: str) -> None: ...

    def rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """What a small query gives."""

    def emptied(self, table: Table) -> str:
        """The statement that takes all rows out of a table."""

    def assigned(self, column: str, staged: str, kept: str) -> str:
        """The expression that brings a column of the temporary table into one of type `kept`."""

    def compared(self, column: str, staged: str, kept: str) -> str:
        """The expression that finds a column of the temporary table in one of type `kept`."""

    def matching(self, table: Table, id: str) -> AbstractContextManager[object]:
        """Within it the temporary table and this one are joined by that column, however many rows they have."""

    def commit(self) -> None: ...

    def close(self) -> None:
        """Undoes what is not committed; may be called twice."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Where and what the sink writes.

    `receipts` say what this run has written there before, `remember` takes a new receipt right before the commit.
    """

    target: Target
    columns: OutputColumns
    chunks: Callable[[], Iterable[Chunk]]
    receipts: Sequence[WriteReceipt] = ()
    remember: Callable[[WriteReceipt], None] = lambda receipt: None


def connected(url: DatabaseUrl) -> Dialect:
    """The dialect of that database, connected.  Raises DatabaseError."""
    module, _, name = _DIALECTS[url.kind].partition(":")
    dialect: Dialect = getattr(import_module(module), name)(url)
    return dialect


class TableSink:
    """Output rows as rows of a table; implements `ports.Sink`.  Raises OutputError, with the table as it was."""

    def __init__(self, settings: TableSettings) -> None:
        self._target = settings.target
        self._settings = settings
        self._schema = arrow_schema(settings.chunks(), settings.columns)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._dialect: Dialect | None = None
        with self._explained():
            self._dialect = connected(self._target.url)
            self._types = {field.name: self._dialect.types_of(field) for field in self._schema}
            self._dialect.make_stage(_defined({name: staged for name, (staged, _) in self._types.items()}))

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows."""
        converted = arrow_batch(batch, self._schema)
        self._waiting.append(converted)
        self._rows += converted.num_rows
        rows = sum(one.num_rows for one in self._waiting)
        if rows >= _ROWS_PER_LOAD or sum(one.nbytes for one in self._waiting) >= _BYTES_PER_LOAD:
            with self._explained():
                self._load()

    def commit(self) -> None:
        """Makes the rows visible in the table, all at once."""
        with self._explained() as dialect:
            self._load()
            dialect.begin()
            self._check_ids(dialect)
            before = self._settle(dialect)
            target = self._target
            names = self._schema.names
            receipt = WriteReceipt(
                url=str(target.url),
                table_name=target.table_name,
                mode=target.mode,
                names=tuple(names),
                rows=self._rows,
                before=before,
            )
            self._settings.remember(receipt)
            dialect.commit()
            dialect.close()

    def abort(self) -> None:
        """Leaves the table as it is."""
        if self._dialect is not None:
            self._dialect.close()

    def _load(self) -> None:
        import pyarrow as pa

        if self._waiting and self._dialect is not None:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting = []
            if table.num_rows:
                self._dialect.load(table)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[Any]:
        try:
            yield self._dialect
        except DatabaseError as error:
            self.abort()
            raise OutputError(f"{self._target} could not be written and is as it was: {error}") from None
        except BaseException:
            self.abort()
            raise

    def _check_ids(self, dialect: Dialect) -> None:
        name = self._target.id
        if name is None:
            return
        check_id(self._target, self._schema.names)
        column, row = quoted(name), quoted(self._settings.columns.meta_names[0])
        missing = dialect.rows(f"SELECT {row} FROM {STAGE} WHERE {column} IS NULL ORDER BY 1 LIMIT {NAMED_ROWS}")
        twice = dialect.rows(
            f"SELECT min({row}), max({row}) FROM {STAGE} WHERE {column} IS NOT NULL "
            f"GROUP BY {column} HAVING count(*) > 1 ORDER BY 1 LIMIT {NAMED_ROWS}"
        )
        if missing or twice:
            raise OutputError(bad_ids(name, [row for (row,) in missing], [(one, other) for one, other in twice]))

    def _settle(self, dialect: Dialect) -> int:
        """Brings the rows into the table, as the mode says; how many rows stood there before, where that matters."""
        table, mode = self._target.table, self._target.mode
        there = dialect.columns(table)
        if there is None:
            self._create(dialect)
            self._insert(dialect, {name: kept for name, (_, kept) in self._types.items()})
            return 0
        if mode in ("create", "replace"):
            if mode == "create":
                check_absent(dialect, self._target, there, self._settings.receipts)
            self._replace(dialect, there)
            return 0
        check_id(self._target, list(there))
        if mode == "append":
            return self._append(dialect, there)
        there = self._widen(dialect, there)
        with dialect.matching(table, self._target.id or ""):
            self._update(dialect, there)
            known = f" LEFT JOIN {table.quoted} AS t ON {self._matching(dialect, there)}"
            self._insert(dialect, there, f"{known} WHERE t.{quoted(self._target.id or '')} IS NULL")
        return 0

    def _create(self, dialect: Dialect) -> None:
        key = "" if self._target.id is None else f", PRIMARY KEY ({quoted(self._target.id)})"
        columns = _defined({name: kept for name, (_, kept) in self._types.items()})
        dialect.execute(f"CREATE TABLE {self._target.table.quoted} ({columns}{key})")

    def _replace(self, dialect: Dialect, there: Mapping[str, str]) -> None:
        """A table of the same shape is emptied, so that its indexes and grants stay; another is made anew."""
        wanted = {name: kept for name, (_, kept) in self._types.items()}
        table = self._target.table
        if list(wanted.items()) == list(there.items()):
            dialect.execute(dialect.emptied(table))
        else:
            dialect.execute(f"DROP TABLE {table.quoted}")
            self._create(dialect)
        self._insert(dialect, wanted)

    def _append(self, dialect: Dialect, there: Mapping[str, str]) -> int:
        """Appends once: a run that has appended before, also where it was killed over it, does not again."""
        ((before,),) = dialect.rows(f"SELECT count(*) FROM {self._target.table.quoted}")
        receipt = next(
            (
                receipt
                for receipt in self._settings.receipts
                if receipt.is_of(self._target) and receipt.mode == "append"
            ),
            None,
        )
        if (
            receipt is not None
            and not receipt.settled
            and before == receipt.before + receipt.rows
            and receipt.rows == self._rows
        ):
            return receipt.before
        if receipt is not None and (receipt.settled or before != receipt.before):
            raise OutputError(
                f"{self._target} holds rows of this run already, and has changed since: appending them again would "
                "double them; write them with --mode upsert --id COLUMN, or export them to another table or a file"
            )
        self._insert(dialect, self._widen(dialect, there))
        return int(before)

    def _widen(self, dialect: Dialect, there: Mapping[str, str]) -> Mapping[str, str]:
        """Adds the columns that the table lacks."""
        added = {name: kept for name, (_, kept) in self._types.items() if name not in there}
        for name, kept in added.items():
            dialect.execute(f"ALTER TABLE {self._target.table.quoted} ADD COLUMN {quoted(name)} {kept}")
        return {**there, **added}

    def _insert(self, dialect: Dialect, there: Mapping[str, str], those: str = "") -> None:
        names = self._schema.names
        values = ", ".join(self._value(dialect, name, there) for name in names)
        dialect.execute(
            f"INSERT INTO {self._target.table.quoted} ({listed(names)}) SELECT {values} FROM {STAGE} AS s{those}"
        )

    def _update(self, dialect: Dialect, there: Mapping[str, str]) -> None:
        others = [name for name in self._schema.names if name != self._target.id]
        changes = ", ".join(f"{quoted(name)} = {self._value(dialect, name, there)}" for name in others)
        dialect.execute(
            f"UPDATE {self._target.table.quoted} AS t SET {changes} FROM {STAGE} AS s "
            f"WHERE {self._matching(dialect, there)}"
        )

    def _matching(self, dialect: Dialect, there: Mapping[str, str]) -> str:
        name = self._target.id or ""
        return f"t.{quoted(name)} = {dialect.compared(f's.{quoted(name)}', self._types[name][0], there[name])}"

    def _value(self, dialect: Dialect, name: str, there: Mapping[str, str]) -> str:
        return dialect.assigned(f"s.{quoted(name)}", self._types[name][0], there[name])


def check_target(target: Target, receipts: Sequence[WriteReceipt] = ()) -> None:
    """Connects and looks whether the table can be written in this mode; changes nothing.  Raises OutputError."""
    try:
        with contextlib.closing(connected(target.url)) as dialect:
            there = dialect.columns(target.table)
            if there is not None and target.mode == "create":
                check_absent(dialect, target, there, receipts)
            elif there is not None:
                check_id(target, list(there))
    except DatabaseError as error:
        raise OutputError(f"{target} cannot be written: {error}") from None


def table_rows(target: Target) -> int | None:
    """How many rows stand in the table; None where it is not there.  Raises DatabaseError."""
    with contextlib.closing(connected(target.url)) as dialect:
        if dialect.columns(target.table) is None:
            return None
        ((rows,),) = dialect.rows(f"SELECT count(*) FROM {target.table.quoted}")
        return int(rows)


def check_absent(dialect: Dialect, target: Target, there: Mapping[str, str], receipts: Sequence[WriteReceipt]) -> None:
    """Refuses to make a table that is there, unless it is what this run has written and nobody has changed."""
    own = [receipt for receipt in receipts if receipt.is_of(target) and receipt.mode == "create"]
    if own:
        ((rows,),) = dialect.rows(f"SELECT count(*) FROM {target.table.quoted}")
        if any(receipt.names == tuple(there) and receipt.rows == rows for receipt in own):
            return
    since = ", and has changed since this run wrote it" if any(receipt.settled for receipt in own) else ""
    raise OutputError(
        f"{target} exists{since}: it is not overwritten; choose another --table, "
        "or say --mode append, replace or upsert (with --id COLUMN)"
    )


def check_id(target: Target, names: Sequence[str]) -> None:
    """Refuses a key that is none of these columns.  Raises OutputError."""
    if target.id is not None and target.id not in names:
        raise OutputError(f"--id: there is no column {target.id}; there are {', '.join(names)}")


def _defined(types: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
