"""Owns Arrow files and Arrow streams (`.arrow`, `.feather`), types exact; must not know other formats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rowmill.errors import SourceError
from rowmill.io.sources.batches import checked, cut_batches
from rowmill.io.sources.lines import InputFile
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_MAGIC = b"ARROW1"
_OLD_FEATHER_MAGIC = b"FEA1"


class ArrowFileReader:
    """Reads one Arrow file or one file that holds an Arrow stream, whichever it is."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def schema(self) -> pa.Schema:
        """Names and types; raises SourceError."""
        with self._open() as reader:
            return checked(reader.schema, self._file)

    def columns(self) -> tuple[str, ...]:
        """Names from the schema."""
        return tuple(self.schema().names)

    def size_hint(self) -> int | None:
        """Number of rows of a file; a stream does not tell."""
        with self._open() as reader:
            count = getattr(reader, "count_rows", None)
            return None if count is None else int(count())

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        with self._open() as reader:
            # Notes of pandas and of datasets are no longer true of an output with more columns.
            schema = checked(reader.schema, self._file).remove_metadata()
            yield from cut_batches((batch.cast(schema) for batch in _batches(reader)), first_index)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa

        try:
            with self._file.translated(), self._file.open_arrow() as file:
                magic = file.read(len(_FILE_MAGIC))
                if not magic:
                    raise SourceError(f"{self._file.name} is empty, which no Arrow file is")
                if magic.startswith(_OLD_FEATHER_MAGIC):
                    raise SourceError(f"{self._file.name} is in the first Feather format: write it anew, or as Parquet")
                file.seek(0)
                with (pa.ipc.open_file if magic == _FILE_MAGIC else pa.ipc.open_stream)(file) as reader:
                    yield reader
        except pa.ArrowException as error:
            raise SourceError(f"{self._file.name} is damaged, cut short, or no Arrow file: {error}") from error


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(reader, pa.RecordBatchStreamReader):
        yield from reader
        return
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)
