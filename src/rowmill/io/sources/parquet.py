"""Owns Parquet files, types exact; must not know other formats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rowmill.core.rows.chunks import ArrowChunk
from rowmill.errors import SourceError
from rowmill.io.sources.batches import checked, pieces
from rowmill.io.sources.lines import BYTES_PER_CHUNK, ROWS_PER_CHUNK, InputFile
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

_READ_BUFFER_BYTES = 1 << 20


class ParquetReader:
    """Reads one Parquet file."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def schema(self) -> pa.Schema:
        """Names and types; raises SourceError."""
        with self._open() as parquet:
            return checked(parquet.schema_arrow, self._file)

    def columns(self) -> tuple[str, ...]:
        """Names from the schema."""
        return tuple(self.schema().names)

    def size_hint(self) -> int | None:
        """Number of rows."""
        with self._open() as parquet:
            return int(parquet.metadata.num_rows)

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        with self._open() as parquet:
            # What pandas notes about its index is no longer true of an output with more columns.
            schema = checked(parquet.schema_arrow, self._file).remove_metadata()
            for batch in parquet.iter_batches(batch_size=_rows_per_batch(parquet.metadata)):
                for piece in pieces(batch):
                    indices = range(first_index, first_index + piece.num_rows)
                    yield ArrowChunk(indices, piece.cast(schema))
                    first_index += piece.num_rows

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = self._file.name
        try:
            with self._file.translated(), self._file.open_arrow() as file:
                if not file.size():
                    raise SourceError(f"{name} is empty, which no Parquet file is")
                # Without these the reader would take a whole row group into memory.
                with pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_BUFFER_BYTES) as parquet:
                    yield parquet
        except pa.ArrowException as error:
            raise SourceError(f"{name} is damaged or no Parquet file: {error}") from error


def _rows_per_batch(metadata: Any) -> int:
    """At most 1,000 rows, fewer where rows are so large that 1,000 would not fit into a chunk."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(ROWS_PER_CHUNK, BYTES_PER_CHUNK // max(largest, 1)))
