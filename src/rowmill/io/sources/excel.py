"""Owns Excel workbooks: one sheet's table, values as the sheet holds them; must not know other formats.

Text stays text, whole numbers become integers, dates and times ISO 8601, formulas their last values, and empty cells
and errors null.  Blank rows are no rows, and columns without a header and without any value are none.  The format is
read whole: a sheet has at most 1,048,576 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from itertools import islice
from typing import Any

from rowmill.core.rows.chunks import ObjectChunk
from rowmill.errors import SourceError
from rowmill.io.sources.headers import named, refuse_twice
from rowmill.io.sources.lines import InputFile, cut
from rowmill.ports import Chunk
from rowmill.records import Fault

_EXACT_IN_DOUBLE = 1 << 53
_ROUGH_VALUE_BYTES = 8

_Merged = Sequence[tuple[tuple[int, int], tuple[int, int]]]


class ExcelReader:
    """Reads one sheet of a workbook: the first, or the one that was named."""

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._opened: _Table | None = None

    def columns(self) -> tuple[str, ...]:
        """Names from the header, () for an empty sheet.  Raises SourceError if it cannot be used."""
        return self._table().names

    def size_hint(self) -> int | None:
        """Number of rows."""
        return sum(1 for _ in self._table().rows())

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        yield from cut(self._table().rows(), first_index, ObjectChunk)

    def _table(self) -> _Table:
        if self._opened is None:
            self._opened = _Table(self._sheet(), self._file)
        return self._opened

    def _sheet(self) -> Any:
        try:
            from python_calamine import CalamineError, CalamineWorkbook, PasswordError
        except ImportError:
            raise SourceError(
                f"{self._file.name}: Excel needs a package that is not installed: pip install 'rowmill[excel]'"
            ) from None
        name = self._file.name
        try:
            with self._file.translated(), self._file.open_random() as stream:
                workbook = CalamineWorkbook.from_filelike(stream)
            return workbook.get_sheet_by_name(_chosen(workbook.sheet_names, self._file))
        except PasswordError:
            raise SourceError(f"{name} is protected by a password: save it without") from None
        except CalamineError as error:
            raise SourceError(f"{name} is damaged or no Excel workbook: {error}") from error


def _chosen(sheets: Sequence[str], file: InputFile) -> str:
    """The sheet of that name, or of that number from 1; the first where none is asked for."""
    wanted = file.sheet
    if not sheets:
        raise SourceError(f"{file.name} has no sheet")
    if wanted is None:
        return sheets[0]
    if wanted in sheets:
        return wanted
    if wanted.isdecimal() and 1 <= int(wanted) <= len(sheets):
        return sheets[int(wanted) - 1]
    raise SourceError(f"{file.name} has no sheet '{wanted}'; it has {', '.join(map(repr, sheets))}")


class _Table:
    """The table on a sheet: where its header is, and which of the sheet's columns belong to it."""

    def __init__(self, sheet: Any, file: InputFile) -> None:
        self._sheet = sheet
        self._header_row = -1
        self.names: tuple[str, ...] = ()
        self._columns: Sequence[int] = ()
        found = self._find_header()
        if found is None:
            return
        self._header_row, cells = found
        used = [column for column, cell in enumerate(cells) if cell]
        for row in self._below_header():
            if len(used) == len(row):
                break
            used = sorted({*used, *(column for column, value in enumerate(row) if value != "")})
        self._columns = used
        self.names = named([cells[column] for column in used])
        refuse_twice(self.names, file.name)

    def rows(self) -> Iterator[tuple[dict[str, Any], int, Fault | None]]:
        """Each row that is not blank, its rough size in bytes, and no fault: a sheet has no broken lines."""
        names, columns = self.names, self._columns
        for row in self._below_header():
            values = [_plain(row[column]) for column in columns]
            size_bytes = sum(len(value) if type(value) is str else _ROUGH_VALUE_BYTES for value in values)
            if any(value is not None for value in values):
                yield dict(zip(names, values, strict=True)), size_bytes, None

    def _below_header(self) -> Iterator[list[Any]]:
        return islice(self._sheet.iter_rows(), self._header_row + 1, None)

    def _find_header(self) -> tuple[int, list[str]] | None:
        """Index and texts of the first row that is neither blank nor one merged title."""
        merged: _Merged = self._sheet.merged_cell_ranges or ()
        for number, row in enumerate(self._sheet.iter_rows()):
            filled = [column for column, value in enumerate(row) if value != ""]
            if filled and not (len(filled) == 1 and _width(merged, number, filled[0]) > 1):
                return number, _header_texts(row, merged, number)
        return None


def _header_texts(row: Sequence[Any], merged: _Merged, number: int) -> list[str]:
    """Texts of the header; the columns under one merged cell are told apart by `_2`, `_3`, ..."""
    texts = ["" if value == "" else str(_plain(value)) for value in row]
    for column, text in enumerate(texts):
        if text:
            for step in range(1, _width(merged, number, column)):
                texts[column + step] = f"{text}_{step + 1}"
    return texts


def _width(merged: _Merged, number: int, column: int) -> int:
    """How many columns the cell spans."""
    return next((last[1] - first[1] + 1 for first, last in merged if first == (number, column)), 1)


def _plain(value: Any) -> Any:
    if type(value) is str:
        return value or None
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < _EXACT_IN_DOUBLE else value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return value
