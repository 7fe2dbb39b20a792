"""Owns CSV and TSV: header, quoting, one row or one fault for every record; must not know other formats.

Cells are text, exactly as written.  Quoting is RFC 4180's: a quote opens a quoted field only as its first
character, and anywhere else it is a character like others.  Where the quoting is broken (a quote that never
closes, text after a closing quote) the line that opened it is a fault and the lines after it are read on
their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowmill.core.names.formats import delimiter_of
from rowmill.core.rows.chunks import TableChunk
from rowmill.errors import SourceError
from rowmill.io.sources.headers import named, refuse_twice
from rowmill.io.sources.lines import InputFile, Lines, cut
from rowmill.ports import Chunk
from rowmill.records import Fault

_CellRow = tuple[Sequence[str], int, Fault | None]
_NO_CELLS: Sequence[str] = ()


class CsvReader:
    """Reads one CSV or TSV file."""

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._delimiter = file.delimiter or delimiter_of(file.leaf)

    def columns(self) -> tuple[str, ...]:
        """Names from the header, () for an empty file.  Raises SourceError if the header cannot be used."""
        with self._file.open() as stream:
            return self._header(Lines(stream)).names

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        with self._file.open() as stream:
            lines = Lines(stream)
            header = self._header(lines)
            yield from cut(
                self._rows(lines, header),
                first_index,
                lambda indices, rows, faults: TableChunk(indices, header.names, rows, faults),
            )

    def size_hint(self) -> int | None:
        """Unknown before reading."""
        return None

    def _header(self, lines: Lines) -> _Header:
        while line := lines.next():
            record = _Record(lines, self._delimiter, line)
            if record.broken or record.undecodable:
                reason = record.broken or self._file.undecodable(line)
                raise SourceError(f"the header of {self._file.name} (line {lines.number}) cannot be read: {reason}")
            if record.cells:
                return _Header(record.cells, self._file)
        return _Header([], self._file)

    def _rows(self, lines: Lines, header: _Header) -> Iterator[_CellRow]:
        delimiter, width, limit_bytes = self._delimiter, len(header.names), lines.limit_bytes
        while line := lines.next():
            # The plain case first: text without quotes, as wide as the header.
            if b'"' not in line and len(line) < limit_bytes:
                try:
                    cells = line.decode().removesuffix("\n").removesuffix("\r").split(delimiter)
                except UnicodeDecodeError:
                    pass
                else:
                    if len(cells) == width and (width > 1 or cells[0]):
                        yield cells, len(line), None
                        continue
            yield from self._difficult_row(lines, line, header)

    def _difficult_row(self, lines: Lines, line: bytes, header: _Header) -> Iterator[_CellRow]:
        number = lines.number
        record = _Record(lines, self._delimiter, line)
        if not record.cells and not record.broken:
            return
        reason = record.broken
        if record.undecodable and not reason:
            reason = self._file.undecodable(line)
        fitted = None if reason else header.fit(record.cells)
        if fitted is not None:
            yield fitted, record.size_bytes, None
            return
        if not reason:
            reason = header.misfit(record.cells)
        yield _NO_CELLS, record.size_bytes, self._file.fault(number, reason, line)


class _Header:
    """Column names, and how rows of another width are fitted to them."""

    def __init__(self, cells: Sequence[str], file: InputFile) -> None:
        self.names = named(cells)
        filled = [index for index, cell in enumerate(cells) if cell]
        self._least_width = filled[-1] + 1 if filled else len(cells)
        refuse_twice(self.names, file.name)

    def fit(self, cells: Sequence[str]) -> Sequence[str] | None:
        """The cells, one a column, or None where they do not fit.

        Empty cells beyond the last column are a trailing delimiter and go; columns without a name at the end
        come from a trailing delimiter in the header and may be lacking.
        """
        width = len(self.names)
        if len(cells) >= width:
            return None if any(cells[width:]) else cells[:width]
        if len(cells) < self._least_width:
            return None
        return [*cells, *[""] * (width - len(cells))]

    def misfit(self, cells: Sequence[str]) -> str:
        """The reason why these cells are not a row."""
        fields = "field" if len(self.names) == 1 else "fields"
        return f"expected {len(self.names)} {fields}, found {len(cells)}"


class _Broken(Exception):
    """The quoting of a record is broken; its text says how."""


class _Record:
    """One record, read from its first line on; `cells` is empty for a blank line or where it is `broken`."""

    def __init__(self, lines: Lines, delimiter: str, line: bytes) -> None:
        self.cells: list[str] = []
        self.broken = ""
        self.undecodable = False
        self.size_bytes = 0
        self._lines = lines
        self._delimiter = delimiter
        self._more: list[bytes] = []
        try:
            self._split(self._text(line))
        except _Broken as error:
            self.cells, self.broken = [], str(error)
            lines.put_back(self._more)

    def _split(self, text: str) -> None:
        if not text.rstrip("\r\n"):
            return
        offset = 0
        while True:
            if text.startswith('"', offset):
                text, offset = self._quoted_cell(text, offset + 1)
                if not text.startswith(self._delimiter, offset):
                    if text[offset : offset + 3].rstrip("\r\n"):
                        raise _Broken("text after a closing quote")
                    return
            else:
                end = text.find(self._delimiter, offset)
                if end < 0:
                    self.cells.append(text[offset:].removesuffix("\n").removesuffix("\r"))
                    return
                self.cells.append(text[offset:end])
                offset = end
            offset += len(self._delimiter)

    def _quoted_cell(self, text: str, offset: int) -> tuple[str, int]:
        """Reads a cell from behind its opening quote; returns the line where it ends and the offset there."""
        parts: list[str] = []
        while True:
            end = text.find('"', offset)
            if end < 0:
                parts.append(text[offset:])
                text, offset = self._next_text(), 0
                continue
            parts.append(text[offset:end])
            if not text.startswith('"', end + 1):
                self.cells.append("".join(parts) if len(parts) > 1 else parts[0])
                return text, end + 1
            parts.append('"')
            offset = end + 2

    def _next_text(self) -> str:
        line = self._lines.next()
        if not line:
            raise _Broken("a quote is opened and never closed")
        self._more.append(line)
        return self._text(line)

    def _text(self, line: bytes) -> str:
        self.size_bytes += len(line)
        if self.size_bytes >= self._lines.limit_bytes:
            long = self._lines.too_long()
            raise _Broken(f"a quote is opened and the field is {long}" if self._more else long)
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.undecodable = True
            return line.decode("utf-8", "surrogateescape")
