"""Owns plain text: every line, also an empty one, is a row; must not know other formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowmill.core.rows.chunks import TableChunk
from rowmill.io.sources.lines import InputFile, Lines, cut
from rowmill.ports import Chunk
from rowmill.records import Fault

_COLUMNS = ("text",)
_NO_CELLS: Sequence[str] = ()


class TextReader:
    """Reads one text file."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def columns(self) -> tuple[str, ...]:
        """Always `text`."""
        return _COLUMNS

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        with self._file.open() as stream:
            yield from cut(
                self._rows(Lines(stream)),
                first_index,
                lambda indices, rows, faults: TableChunk(indices, _COLUMNS, rows, faults),
            )

    def size_hint(self) -> int | None:
        """Unknown before reading."""
        return None

    def _rows(self, lines: Lines) -> Iterator[tuple[Sequence[str], int, Fault | None]]:
        while line := lines.next():
            if lines.is_too_long(line):
                yield _NO_CELLS, len(line), self._file.fault(lines.number, lines.too_long(), line)
                continue
            try:
                text = line.decode()
            except UnicodeDecodeError:
                reason = self._file.undecodable(line)
                yield _NO_CELLS, len(line), self._file.fault(lines.number, reason, line)
                continue
            yield [text.removesuffix("\n").removesuffix("\r")], len(line), None
