"""Owns how Arrow record batches become chunks with the borders that all chunks have; must not know files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rowmill.core.rows.chunks import ArrowChunk
from rowmill.io.sources.headers import refuse_twice
from rowmill.io.sources.lines import BYTES_PER_CHUNK, ROWS_PER_CHUNK, InputFile
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa


def checked(schema: pa.Schema, file: InputFile) -> pa.Schema:
    """The schema; raises SourceError for a name that stands twice."""
    refuse_twice(schema.names, file.name)
    return schema


def cut_batches(batches: Iterable[pa.RecordBatch], first_index: int) -> Iterator[Chunk]:
    """Chunks of 1,000 rows, or of fewer long ones, whatever the batches' own sizes are.

    Where the batches break off, the rows before come first.
    """
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    try:
        for batch in batches:
            for piece in _slices(batch, ROWS_PER_CHUNK - rows):
                waiting.append(piece)
                rows += piece.num_rows
                size_bytes += piece.nbytes
                if rows == ROWS_PER_CHUNK or size_bytes >= BYTES_PER_CHUNK:
                    yield from _chunks(waiting, first_index)
                    first_index += rows
                    waiting, rows, size_bytes = [], 0, 0
    except (pa.ArrowException, OSError):
        yield from _chunks(waiting, first_index)
        raise
    yield from _chunks(waiting, first_index)


def _slices(batch: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices: one that fills a chunk begun, then whole chunks."""
    start = 0
    while start < batch.num_rows:
        piece = batch.slice(start, room)
        yield piece
        start += piece.num_rows
        room = ROWS_PER_CHUNK


def _chunks(waiting: list[pa.RecordBatch], first_index: int) -> Iterator[Chunk]:
    import pyarrow as pa

    if not waiting:
        return
    whole = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
    for piece in pieces(whole):
        yield ArrowChunk(range(first_index, first_index + piece.num_rows), piece)
        first_index += piece.num_rows


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about 4 MB."""
    count = max(1, -(-batch.nbytes // BYTES_PER_CHUNK))
    step = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
