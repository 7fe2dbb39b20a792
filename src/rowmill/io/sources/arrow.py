"""Owns rows that are in memory already: an Arrow table, or plain rows; must not know where they came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.core.rows.chunks import ArrowChunk, ObjectChunk
from rowmill.errors import SourceError
from rowmill.io.sources.arriving import as_they_come
from rowmill.io.sources.lines import BYTES_PER_CHUNK
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_CHUNK = 1000


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts of about 4 MB."""
    count = max(1, -(-batch.nbytes // BYTES_PER_CHUNK))
    step = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


class ArrowSource:
    """The rows of an Arrow table, types exact; implements `ports.Source`.  Raises SourceError for a name twice."""

    name = "<frame>"
    rereadable = True

    def __init__(self, table: pa.Table) -> None:
        twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
        if twice:
            raise SourceError(f"the frame has more than one column named {', '.join(twice)}: rename all but one")
        self._table = table.replace_schema_metadata(None)

    def columns(self) -> Sequence[str]:
        """The table's columns."""
        return tuple(self._table.column_names)

    def size_hint(self) -> int | None:
        """Number of rows."""
        return int(self._table.num_rows)

    def chunks(self) -> Iterator[Chunk]:
        """All rows, 1,000 at a time whatever the table's own pieces are, so that a resumed run meets equal chunks."""
        import pyarrow as pa

        for start in range(0, self._table.num_rows, ROWS_PER_CHUNK):
            piece = self._table.slice(start, ROWS_PER_CHUNK).combine_chunks()
            batches = piece.to_batches()
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            yield ArrowChunk(range(start, start + batch.num_rows), batch)


class RowsSource:
    """Rows from an iterable of mappings, or of texts, which become rows of one column `text`.  Can be read once."""

    name = "<rows>"
    rereadable = False

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows

    def columns(self) -> Sequence[str] | None:
        """Not known before the rows are read."""
        return None

    def size_hint(self) -> int | None:
        """Number of rows where the iterable tells."""
        return len(self._rows) if isinstance(self._rows, Sequence) else None

    def chunks(self) -> Iterator[Chunk]:
        """All rows, 1,000 at a time, fewer where they come slowly.  Raises SourceError for what is no row."""
        first = 0
        for piece, is_whole in as_they_come(self._rows, ROWS_PER_CHUNK):
            records = [_record(row, index) for index, row in enumerate(piece, first)]
            yield ObjectChunk(range(first, first + len(records)), records, is_open=not is_whole)
            first += len(records)


def _record(row: Any, index: int) -> dict[str, Any]:
    if isinstance(row, str):
        return {"text": row}
    if not isinstance(row, Mapping):
        raise SourceError(f"row {index} is of type {type(row).__name__}; rows are mappings of columns, or texts")
    for name in row:
        if not isinstance(name, str):
            raise SourceError(f"row {index} has a column named {name!r}; names of columns are texts")
    return dict(row)
