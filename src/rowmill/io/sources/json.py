"""Owns `.json` files: an array of objects, or objects one after another; must not know other formats.

The file is never held whole: a scanner looks only for the borders of the elements, each is then decoded by
itself, and one that is not valid JSON inside its borders is a fault.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from rowmill.core.rows.chunks import ObjectChunk, decode_json
from rowmill.errors import SourceError
from rowmill.io.sources.jsonl import JsonlReader, ObjectRow, object_row
from rowmill.io.sources.lines import ROW_LIMIT_BYTES, InputFile, cut
from rowmill.ports import Chunk

_BLOCK_BYTES = 1 << 18
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# An object without nesting, in one step.
_FLAT_OBJECT = re.compile(rb'\{[^{}\[\]"]*+(?:' + _STRING + rb'[^{}\[\]"]*+)*+\}', re.DOTALL)
# A string, a bracket, or the quote of a string that is not whole yet.
_STRUCTURE = re.compile(_STRING + rb'|[\[\]{}"]', re.DOTALL)
_SCALAR_END = re.compile(rb"[,\]}\s]")
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")


class JsonReader:
    """Reads one `.json` file: an array, JSON lines, or objects that may each span lines."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def columns(self) -> tuple[str, ...] | None:
        """Unknown: any element may bring a new key."""
        return None

    def size_hint(self) -> int | None:
        """Unknown before reading."""
        return None

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""
        if self._is_json_lines():
            yield from JsonlReader(self._file).chunks(first_index)
            return
        with self._file.open() as stream:
            yield from cut(self._rows(stream), first_index, ObjectChunk)

    def _is_json_lines(self) -> bool:
        """Whether the first line that is not blank is an object by itself."""
        with self._file.open() as stream:
            line = b"\n"
            while line.isspace():
                line = stream.readline(ROW_LIMIT_BYTES)
        try:
            return isinstance(decode_json(line), dict)
        except ValueError:
            return False

    def _rows(self, stream: io.BufferedReader) -> Iterator[ObjectRow]:
        scanner = _Scanner(stream, self._file.name)
        first = scanner.peek()
        if first not in (b"", b"[", b"{"):
            raise SourceError(
                f"{self._file.name} holds no rows: a JSON array of objects or JSON lines is needed, "
                f"and line {scanner.line} begins with {first.decode('utf-8', 'replace')!r}"
            )
        for line, text in _array_elements(scanner) if first == b"[" else _bare_elements(scanner):
            yield object_row(self._file, line, text)


def _array_elements(scanner: _Scanner) -> Iterator[tuple[int, bytes]]:
    """(line, text) of each element; a comma before the closing bracket is let pass."""
    scanner.skip(b"[")
    while not scanner.skip(b"]"):
        yield scanner.element()
        if not scanner.skip(b",") and scanner.peek() != b"]":
            raise scanner.fault("expected a comma or the end of the array")
    if scanner.peek():
        raise scanner.fault("expected nothing after the end of the array")


def _bare_elements(scanner: _Scanner) -> Iterator[tuple[int, bytes]]:
    while scanner.peek():
        yield scanner.element()


class _Scanner:
    """Finds where JSON values begin and end in a stream, holding one value and one block at a time."""

    def __init__(self, stream: io.BufferedReader, name: str, block_bytes: int = _BLOCK_BYTES) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._name = name
        self._buffer = b""
        self._position = 0
        self.line = 1  # 1-based, at the current position

    def peek(self) -> bytes:
        """The next byte that is not blank, b"" at the end."""
        while True:
            match = _NOT_BLANK.search(self._buffer, self._position)
            if match is not None:
                self._move(match.start())
                return match.group()
            self._move(len(self._buffer))
            if not self._read():
                return b""

    def skip(self, byte: bytes) -> bool:
        """Steps over this byte if it is the next one that is not blank."""
        if self.peek() != byte:
            return False
        self._move(self._position + 1)
        return True

    def element(self) -> tuple[int, bytes]:
        """Steps over the value that begins here: its line and its text."""
        if not self.peek():
            raise self.fault("the file ends within the array")
        line = self.line
        while True:
            end = _end_of_value(self._buffer, self._position)
            if end is not None:
                break
            if len(self._buffer) - self._position > ROW_LIMIT_BYTES:
                raise self.fault(f"the value that begins here is longer than {ROW_LIMIT_BYTES:,} bytes")
            if not self._read():
                raise self.fault("the value that begins here does not end")
        text = self._buffer[self._position : end]
        self._move(end)
        return line, text

    def fault(self, reason: str) -> SourceError:
        """An error at the current position."""
        return SourceError(f"{self._name}, line {self.line}: {reason}; the rows before that were read")

    def _move(self, position: int) -> None:
        self.line += self._buffer.count(b"\n", self._position, position)
        self._position = position

    def _read(self) -> bool:
        """Gets as much again as is held, so that a long value is not scanned too often."""
        pieces = [self._buffer[self._position :]]
        wanted_bytes = max(self._block_bytes, len(pieces[0]))
        while wanted_bytes > 0:
            try:
                piece = self._stream.read1(wanted_bytes)
            except SourceError:
                # What came before the fault is scanned first; reading on meets the fault again.
                if len(pieces) > 1:
                    break
                raise
            if not piece:
                break
            pieces.append(piece)
            wanted_bytes -= len(piece)
        self._buffer, self._position = b"".join(pieces), 0
        return len(pieces) > 1


def _end_of_value(buffer: bytes, start: int) -> int | None:
    """Where the value that starts there ends, None where the buffer does not hold all of it."""
    flat = _FLAT_OBJECT.match(buffer, start)
    if flat is not None:
        return flat.end()
    if buffer[start] not in b'{["':
        end = _SCALAR_END.search(buffer, start + 1)
        return None if end is None else end.start()
    depth = 0
    for token in _STRUCTURE.finditer(buffer, start):
        kind = buffer[token.start()]
        if kind in b"{[":
            depth += 1
        elif kind in b"}]":
            depth -= 1
        elif token.end() - token.start() == 1:
            return None
        if depth == 0:
            return token.end()
    return None
