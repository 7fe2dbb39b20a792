"""Owns JSON lines: one object a line, each line a row or a fault; must not know other formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowmill.core.rows.chunks import ObjectChunk, decode_json
from rowmill.io.sources.arriving import arriving
from rowmill.io.sources.lines import InputFile, Lines, cut
from rowmill.ports import Chunk
from rowmill.records import Fault

# What Rowmill's own file of failed rows adds to each row.
_FAILURE_KEY = "_rowmill"
_JSON_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

ObjectRow = tuple[dict[str, Any], int, Fault | None]


class JsonlReader:
    """Reads one file of JSON lines."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def columns(self) -> tuple[str, ...] | None:
        """Unknown: any line may bring a new key."""
        return None

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`.  Blank lines are no rows."""
        if self._file.path == "-":
            # The stream is the other thread's: closing it would wait for what is being read.
            return cut(arriving(self._rows()), first_index, ObjectChunk, _open_chunk)
        return cut(self._rows(), first_index, ObjectChunk)

    def size_hint(self) -> int | None:
        """Unknown before reading."""
        return None

    def _rows(self) -> Iterator[ObjectRow]:
        with self._file.open() as stream:
            lines = Lines(stream)
            while line := lines.next():
                if lines.is_too_long(line):
                    yield {}, len(line), self._file.fault(lines.number, lines.too_long(), line)
                elif not line.isspace():
                    yield object_row(self._file, lines.number, line)


def _open_chunk(indices: range, rows: list[dict[str, Any]], faults: dict[int, Fault]) -> ObjectChunk:
    return ObjectChunk(indices, rows, faults, is_open=True)


def object_row(file: InputFile, line: int, text: bytes) -> ObjectRow:
    """The row that a JSON text at this line is, or its fault."""
    try:
        record = decode_json(text)
    except ValueError as error:
        reason = file.undecodable(text) if "UTF-8" in str(error) else str(error)
        return {}, len(text), file.fault(line, reason, text)
    if type(record) is not dict:
        found = _JSON_NAMES.get(type(record), "a number")
        return {}, len(text), file.fault(line, f"expected a JSON object, found {found}", text)
    record.pop(_FAILURE_KEY, None)
    return record, len(text), None
