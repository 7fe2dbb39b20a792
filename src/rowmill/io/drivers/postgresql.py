"""Owns a connection to PostgreSQL: how it is made, its transaction, its errors in words; must not know rows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.core.names.databases import DatabaseUrl
from rowmill.errors import DatabaseError
from rowmill.io.drivers.waiting import awaited

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 1 << 18
# A server that has vanished is noticed within about a minute; what the URL says about it goes before.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "application_name": "rowmill",
}
_PATIENCE_VARIABLES = {"connect_timeout": "PGCONNECT_TIMEOUT", "application_name": "PGAPPNAME"}


class PostgresqlConnection:
    """One connection, always within a transaction; use it in a `with`.  Raises DatabaseError."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._opened = contextlib.ExitStack()
        self._connection: Any = None

    def __enter__(self) -> PostgresqlConnection:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> None:
        """Connects."""
        try:
            # Not its DB-API, which imports pandas and polars where they are installed.
            import adbc_driver_manager as manager
            import adbc_driver_postgresql as driver
        except ImportError:
            raise DatabaseError("PostgreSQL needs a driver: pip install 'rowmill[postgresql]'") from None
        url = _connection_url(self._url)
        with self._translated():
            self._opened = contextlib.ExitStack()
            database = self._opened.enter_context(driver.connect(url))
            self._connection = self._opened.enter_context(manager.AdbcConnection(database))
            self._connection.set_autocommit(False)

    def execute(self, sql: str) -> None:
        """Runs one statement."""
        with self._translated(), self._statement(sql) as statement:
            awaited(statement.execute_update, statement.cancel)

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """What a small query gives."""
        lists = ([column.to_pylist() for column in batch.columns] for batch in self.batches(sql))
        return [row for columns in lists for row in zip(*columns, strict=True)]

    def schema(self, query: str) -> pa.Schema:
        """The columns that a query would give; it is prepared, not run."""
        import pyarrow as pa

        with self._translated(), self._statement(query) as statement:
            return pa.schema(awaited(statement.execute_schema, statement.cancel))

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """What a query gives, streamed by COPY a few hundred kilobytes at a time, as fast as it is taken."""
        import pyarrow as pa

        with self._translated(), self._statement(query) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            handle, _ = awaited(statement.execute_query, statement.cancel)
            with pa.RecordBatchReader.from_stream(handle) as reader:
                while (batch := awaited(lambda: next(reader, None), statement.cancel)) is not None:
                    yield batch

    def ingest(self, table_name: str, table: pa.Table) -> None:
        """Appends to a temporary table by COPY."""
        from adbc_driver_manager import StatementOptions

        options = {
            StatementOptions.INGEST_TARGET_TABLE.value: table_name,
            StatementOptions.INGEST_MODE.value: "adbc.ingest.mode.append",
            StatementOptions.INGEST_TEMPORARY.value: "true",
        }
        with self._translated(), self._statement(None) as statement:
            statement.set_options(**options)
            statement.bind_stream(table.to_reader())
            awaited(statement.execute_update, statement.cancel)

    @contextlib.contextmanager
    def _statement(self, sql: str | None) -> Iterator[Any]:
        from adbc_driver_manager import AdbcStatement

        with AdbcStatement(self._connection) as statement:
            if sql is not None:
                statement.set_sql_query(sql)
            yield statement

    def commit(self) -> None:
        """Ends the transaction; what was done in it stays."""
        with self._translated():
            self._connection.commit()

    def close(self) -> None:
        """Ends the transaction, undone unless committed, and the connection; may be called twice."""
        with contextlib.suppress(Exception):  # whatever a broken connection says now was said before
            self._opened.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        import pyarrow as pa
        from adbc_driver_manager import Error

        try:
            yield
        except (Error, OSError, pa.ArrowException) as error:
            words = self._url.redact(_words(str(error)), os.environ)
            raise DatabaseError(words) from None


def _connection_url(stated: DatabaseUrl) -> str:
    try:
        url = stated.connection_url(os.environ)
    except KeyError as missing:
        raise DatabaseError(
            f"the password is to come from the environment variable {missing.args[0]}, which is not set"
        ) from None
    query = url.partition("?")[2]
    named = {part.partition("=")[0] for part in query.split("&")}
    added = [
        f"{name}={value}"
        for name, value in _PATIENCE.items()
        if name not in named and _PATIENCE_VARIABLES.get(name, "") not in os.environ
    ]
    return url + ("&" if query else "" if url.endswith("?") else "?") + "&".join(added)


def _words(message: str) -> str:
    """The server's own sentence out of what the driver wrapped around it."""
    said = re.search(r"(?:ERROR|FATAL):\s+(.*)", message)
    detail = re.search(r"DETAIL:\s+(.*)", message)
    if said is not None:
        words = said[1].strip()
        return f"{words} ({detail[1].strip()})" if detail is not None else _with_advice(words)
    words = re.sub(r"^(?:[A-Z_]+: )?(?:\[libpq\] )?(?:Failed to connect: )?", "", message.strip())
    words = re.sub(r"^PQ\w+\(\) failed: ", "", words)
    return _with_advice(words.splitlines()[0].strip() if words else "the connection broke off")


def _with_advice(words: str) -> str:
    if "password" in words:
        words += " (a password comes from PGPASSWORD, ~/.pgpass, or the URL: user:$NAME@host names a variable)"
    return words
