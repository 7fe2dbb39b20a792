"""Owns what readers of text share: one input file, its lines, its chunks' borders; must not know formats."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from rowmill.core.names.files import is_remote, leaf
from rowmill.errors import SourceError
from rowmill.io.files.remote import open_file
from rowmill.io.sources.bytestream import open_bytes, reason
from rowmill.ports import Chunk
from rowmill.records import Fault

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_CHUNK = 1_000
BYTES_PER_CHUNK = 4 << 20
# A longer line or quoted field is not a row: reading on would need memory without bound.
ROW_LIMIT_BYTES = 16 << 20
_EXCERPT_CHARACTERS = 300

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a source.  `among_others` is true where a glob found several: then faults name theirs."""

    path: str
    encoding: str | None = None
    delimiter: str | None = None
    among_others: bool = False
    sheet: str | None = None

    @property
    def name(self) -> str:
        """What the user calls it."""
        return "standard input" if self.path == "-" else self.path

    @property
    def leaf(self) -> str:
        """Its own name in small letters, by which its kind is told."""
        return leaf(self.path).lower()

    def open_random(self) -> BinaryIO:
        """Its bytes as they are, for formats that are not read from start to end; raises OSError."""
        return open_file(self.path, "random") if is_remote(self.path) else open(self.path, "rb")

    def open_arrow(self) -> pa.NativeFile:
        """The same for Arrow's readers, which read a file of this machine by themselves."""
        import pyarrow as pa

        return pa.PythonFile(self.open_random(), "r") if is_remote(self.path) else pa.OSFile(self.path, "rb")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turns an OSError inside into ours."""
        try:
            yield
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read: {reason(error)}") from error

    def open(self) -> io.BufferedReader:
        """Its content as UTF-8; raises SourceError."""
        return open_bytes(self.path, self.name, self.encoding)

    def fault(self, line: int, reason: str, raw: bytes) -> Fault:
        """A fault in this file at a 1-based line."""
        where = f"in {self.path}: " if self.among_others else ""
        excerpt = raw[: 4 * _EXCERPT_CHARACTERS].decode("utf-8", "backslashreplace").rstrip("\r\n")
        return Fault(line, where + reason, excerpt[:_EXCERPT_CHARACTERS])

    def undecodable(self, raw: bytes) -> str:
        """The reason why a line of these bytes is no text."""
        if self.encoding is not None:
            return f"not valid {self.encoding}"
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            position = f" at byte {error.start + 1}"
        else:
            position = ""
        return f"not valid UTF-8{position} (if the whole file is in another encoding, name it with --encoding)"


class Lines:
    """Lines of a stream with their line feeds, split at line feeds only; lines can be put back."""

    def __init__(self, stream: io.BufferedReader, limit_bytes: int = ROW_LIMIT_BYTES) -> None:
        self._stream = stream
        self._put_back: deque[bytes] = deque()
        self.limit_bytes = limit_bytes
        self.number = 0  # 1-based, of the line that `next` gave last

    def next(self) -> bytes:
        """The next line, b"" at the end.  Of a line beyond the limit only the first `limit_bytes` come."""
        if self._put_back:
            self.number += 1
            return self._put_back.popleft()
        line = self._stream.readline(self.limit_bytes)
        if line:
            self.number += 1
            if len(line) == self.limit_bytes and not line.endswith(b"\n"):
                self._skip_rest()
        return line

    def put_back(self, lines: Iterable[bytes]) -> None:
        """Makes these lines, the last that were given, the next ones again."""
        lines = list(lines)
        self._put_back.extendleft(reversed(lines))
        self.number -= len(lines)

    def is_too_long(self, line: bytes) -> bool:
        """Whether the line reaches the limit, so that its end may be missing."""
        return len(line) >= self.limit_bytes

    def too_long(self) -> str:
        """The reason why such a line is not a row."""
        return f"longer than {self.limit_bytes:,} bytes"

    def _skip_rest(self) -> None:
        while True:
            rest = self._stream.readline(self.limit_bytes)
            if not rest or rest.endswith(b"\n"):
                return


def cut(
    rows: Iterator[tuple[Record, int, Fault | None] | None],
    first_index: int,
    make: Callable[[range, list[Record], dict[int, Fault]], Chunk],
    make_open: Callable[[range, list[Record], dict[int, Fault]], Chunk] | None = None,
) -> Iterator[Chunk]:
    """Chunks of at most 1,000 rows and about 4 MB, so that the same content always has the same borders.

    `rows` gives each row's record, its length in bytes and its fault.  Where it gives None, `make_open` makes a
    chunk of what has come so far; the rest of the same chunk follows.  When it raises SourceError, the rows before
    come first.
    """
    records: list[Record] = []
    faults: dict[int, Fault] = {}
    size_bytes, taken, end = 0, 0, first_index
    try:
        for row in rows:
            if row is None:
                if records and make_open is not None:
                    start, end = end, end + len(records)
                    yield make_open(range(start, end), records, faults)
                    records, faults = [], {}
                continue
            record, length_bytes, fault = row
            if fault is not None:
                faults[len(records)] = fault
            records.append(record)
            taken += 1
            size_bytes += length_bytes
            if taken == ROWS_PER_CHUNK or size_bytes >= BYTES_PER_CHUNK:
                start, end = end, end + len(records)
                yield make(range(start, end), records, faults)
                records, faults, size_bytes, taken = [], {}, 0, 0
    except SourceError:
        if records:
            yield make(range(end, end + len(records)), records, faults)
        raise
    if records:
        yield make(range(end, end + len(records)), records, faults)
