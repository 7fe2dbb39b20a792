"""Owns CSV and TSV output: UTF-8, RFC 4180 quoting, line feeds; must not know other formats.

Numbers are written so that they read back equal, booleans as true and false, null and NaN as an empty cell,
times as ISO 8601, bytes as base64, and what is nested as JSON.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

from rowmill.core.rows.chunks import decode_json, encode_json
from rowmill.core.rows.outputs import Batch
from rowmill.io.sinks.atomic import AtomicFile
from rowmill.io.sinks.settings import SinkSettings

# What a spreadsheet takes for the start of a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_AS_THEY_ARE = frozenset({str, int, type(None)})


class CsvSink:
    """Output rows as CSV, with a header always."""

    delimiter = ","

    def __init__(self, settings: SinkSettings) -> None:
        self._escape_formulas = settings.escape_formulas
        self._file = AtomicFile(settings.path)
        self._write([settings.columns.names])

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows."""
        self._write(map(_cells, batch.rows()))

    def commit(self) -> None:
        """Makes the output appear under its name."""
        self._file.commit()

    def abort(self) -> None:
        """Takes the unfinished output away."""
        self._file.abort()

    def _write(self, rows: Iterable[Sequence[Any]]) -> None:
        if self._escape_formulas:
            rows = ([_guarded(cell) for cell in row] for row in rows)
        lines = _Lines()
        # With CR in the line end, the writer quotes cells that hold a CR; the CR of the line end itself goes.
        csv.writer(lines, delimiter=self.delimiter, lineterminator="\r\n").writerows(rows)
        self._file.write("".join(lines.lines).encode("utf-8", "replace"))


class TsvSink(CsvSink):
    """Output rows as TSV, quoted like CSV."""

    delimiter = "\t"


class _Lines:
    """Takes what the csv module writes, a row a call."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line[:-2] + "\n")


def _cells(row: list[Any]) -> list[Any]:
    return [cell if type(cell) in _AS_THEY_ARE else _cell(cell) for cell in row]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if value == value else None
    text = encode_json(value).decode()
    # What JSON writes as one string (times, bytes, unknown objects) needs no quotes here.
    return decode_json(text) if text.startswith('"') else text


def _guarded(cell: Any) -> Any:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
