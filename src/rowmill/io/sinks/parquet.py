"""Owns Parquet output: one fixed schema, row groups of bounded size; must not know other formats."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq

from rowmill.core.rows.outputs import Batch, arrow_batch
from rowmill.errors import OutputError
from rowmill.io.sinks.atomic import AtomicFile
from rowmill.io.sinks.settings import SinkSettings

_ROWS_PER_GROUP = 1 << 16
_BYTES_PER_GROUP = 64 << 20


class ParquetSink:
    """Output rows as Parquet, compressed with zstd.  Reads all input once for its types, before any row."""

    def __init__(self, settings: SinkSettings) -> None:
        self._path = settings.path
        # Marks are for databases.
        self._schema = pa.schema([field.remove_metadata() for field in settings.schema()])
        self._file = AtomicFile(settings.path)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        with self._file.translated():
            self._writer = self._open_writer()

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows."""
        converted = arrow_batch(batch, self._schema)
        self._waiting.append(converted)
        self._waiting_rows += converted.num_rows
        self._waiting_bytes += converted.nbytes
        if self._waiting_rows >= _ROWS_PER_GROUP or self._waiting_bytes >= _BYTES_PER_GROUP:
            self._write_group()

    def commit(self) -> None:
        """Makes the output appear under its name."""
        self._write_group()
        with self._file.translated():
            self._writer.close()
        self._file.commit()

    def abort(self) -> None:
        """Takes the unfinished output away."""
        # Else the writer writes its footer when it is collected, into a closed file.
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()
        self._writer.is_open = False
        self._file.abort()

    def _open_writer(self) -> pq.ParquetWriter:
        try:
            return pq.ParquetWriter(self._file.file, self._schema, compression="zstd")
        except pa.ArrowException as error:
            self._file.abort()
            raise OutputError(
                f"{self._path} cannot be written as Parquet: {error}; write .jsonl or .csv instead"
            ) from error

    def _write_group(self) -> None:
        if not self._waiting_rows:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        with self._file.translated():
            self._writer.write_table(table, row_group_size=table.num_rows)
