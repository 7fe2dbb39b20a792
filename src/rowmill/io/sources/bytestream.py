"""Owns how a file becomes UTF-8 bytes (compression, encoding, marks); must not know formats or rows."""

from __future__ import annotations

import codecs
import io
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from rowmill.core.names.files import file_part, is_remote
from rowmill.core.names.formats import compression_of
from rowmill.errors import SourceError
from rowmill.io.files.remote import open_file
from rowmill.io.sources.encodings import check_head, is_utf8

_HEAD_BYTES = 1 << 16
_LONG_LINE_BYTES = 8 * 1024 * 1024
_BUFFER_BYTES = 1 << 18
# A small step of compressed input bounds what one step can expand to.
_COMPRESSED_STEP_BYTES = 1 << 13
_ANY_GZIP_WINDOW = 31
_LARGEST_ZSTD_WINDOW_BYTES = 1 << 31

Read = Callable[[int], bytes]


def open_bytes(path: str, name: str, encoding: str | None) -> io.BufferedReader:
    """The file's content as UTF-8 without a byte order mark, unpacked, `-` is standard input.

    With an encoding given it is converted, and bytes that are no text in it become bytes that are no UTF-8.
    Every fault of opening or reading is a SourceError that names the file, also later while reading.
    """
    file = _open(path, name)
    close = file.close if path != "-" else lambda: None
    stream = _Stream(name, _unpacked(file, path), encoding, close)
    try:
        head = stream.read_head(1 if path == "-" else _HEAD_BYTES)
        if encoding is None:
            check_head(name, head)
    except SourceError:
        stream.close()
        raise
    if encoding is None or is_utf8(encoding):
        stream.drop_mark()
    else:
        stream.convert(encoding)
    return io.BufferedReader(stream, _BUFFER_BYTES)


def _open(path: str, name: str) -> BinaryIO:
    if path == "-":
        # The reader above it locks itself while it waits, and a process that ends meanwhile would be aborted for it.
        return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    try:
        return open_file(path, "sequential") if is_remote(path) else open(path, "rb")
    except OSError as error:
        raise SourceError(f"{name} cannot be read: {reason(error)}") from error


def reason(error: OSError) -> str:
    """What went wrong, in words for the middle of a sentence."""
    return error.strerror.lower() if error.strerror else str(error)


def _unpacked(file: BinaryIO, path: str) -> Read:
    compression = compression_of(file_part(path).lower())
    if compression == ".gz":
        return _Unpacker(file, lambda: zlib.decompressobj(_ANY_GZIP_WINDOW), zlib.error).read
    if compression == ".zst":
        import zstandard

        zstd = zstandard.ZstdDecompressor(max_window_size=_LARGEST_ZSTD_WINDOW_BYTES)
        return _Unpacker(file, zstd.decompressobj, zstandard.ZstdError).read
    read1: Read = getattr(file, "read1", file.read)
    return read1


class _Frame(Protocol):
    """One member of a compressed file, as zlib and zstandard offer it."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, packed: bytes, /) -> bytes: ...


class _Unpacker:
    """Unpacks any number of compressed members that follow each other."""

    def __init__(self, file: BinaryIO, new_frame: Callable[[], _Frame], fault: type[Exception]) -> None:
        self._file = file
        self._new_frame = new_frame
        self._fault = fault
        self._frame: _Frame | None = None
        self._rest = b""

    def read(self, _size: int) -> bytes:
        """Some bytes, b"" at the end; EOFError where the file ends within a member, ValueError if damaged."""
        while True:
            packed = self._rest or self._file.read(_COMPRESSED_STEP_BYTES)
            self._rest = b""
            if not packed:
                if self._frame is not None:
                    raise EOFError
                return b""
            if plain := self._unpack(packed):
                return plain

    def _unpack(self, packed: bytes) -> bytes:
        if self._frame is None:
            # Padding with zeros between and after members is allowed.
            packed = packed.lstrip(b"\0")
            if not packed:
                return b""
            self._frame = self._new_frame()
        try:
            plain = self._frame.decompress(packed)
        except self._fault as error:
            raise ValueError(str(error)) from error
        if self._frame.eof:
            self._rest = self._frame.unused_data
            self._frame = None
        return plain


class _Stream(io.RawIOBase):
    """Raw bytes from a chain of reads, with every fault translated in one place."""

    def __init__(self, name: str, read: Read, encoding: str | None, close: Callable[[], None]) -> None:
        super().__init__()
        self._name = name
        self._read = read
        self._encoding = encoding
        self._close = close
        self._ahead = b""
        self._broken: SourceError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ahead:
            self._ahead = self._pull(len(buffer))
        piece = self._ahead[: len(buffer)]
        self._ahead = self._ahead[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()

    def read_head(self, least: int) -> bytes:
        """The first bytes, at `least` so many where there are, which are read again later."""
        while len(self._ahead) < least:
            try:
                more = self._pull(_HEAD_BYTES)
            except SourceError:
                # The rows before the fault are to be read first; reading on raises it again.
                if self._ahead:
                    break
                raise
            if not more:
                break
            self._ahead += more
        return self._ahead[:_HEAD_BYTES]

    def drop_mark(self) -> None:
        """Takes a UTF-8 byte order mark off; lines that end in CR alone get line feeds."""
        self._ahead = self._ahead.removeprefix(codecs.BOM_UTF8)
        self._look_for_line_feed()
        if b"\n" not in self._ahead and b"\r" in self._ahead.rstrip(b"\r"):
            self._chain(lambda piece: piece.replace(b"\r", b"\n"))

    def _look_for_line_feed(self) -> None:
        """Reads on where the first line is long: a carriage return within it ends no line of a file with line feeds."""
        searched = 0
        while b"\n" not in self._ahead[searched:] and b"\r" in self._ahead and len(self._ahead) < _LONG_LINE_BYTES:
            searched = len(self._ahead)
            try:
                more = self._pull(searched)
            except SourceError:  # reading on raises it again
                return
            if not more:
                return
            self._ahead += more

    def convert(self, encoding: str) -> None:
        """From here on reads UTF-8 made from this encoding."""
        decoder = codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
        starts = True

        def converted(piece: bytes) -> bytes:
            nonlocal starts
            text = decoder.decode(piece, final=not piece)
            if starts and text:
                text, starts = text.removeprefix("\ufeff"), False
            # A surrogate in UTF-8 is invalid for every reader: the row it is in becomes a fault.
            return text.encode("utf-8", "surrogatepass")

        self._chain(converted)

    def _chain(self, change: Callable[[bytes], bytes]) -> None:
        source, first, ended = self._read, self._ahead, False
        self._ahead = b""

        def read(size: int) -> bytes:
            nonlocal first, ended
            while not ended:
                piece, first = first or source(size), b""
                ended = not piece
                if changed := change(piece):
                    return changed
            return b""

        self._read = read

    def _pull(self, size: int) -> bytes:
        if self._broken is not None:
            raise self._broken
        try:
            return self._translated_read(size)
        except SourceError as error:
            self._broken = error
            raise

    def _translated_read(self, size: int) -> bytes:
        try:
            return self._read(size)
        except EOFError:
            raise SourceError(
                f"{self._name} is cut short: its compressed data ends too early; the rows before were read"
            ) from None
        except UnicodeError as error:
            raise SourceError(f"{self._name} is not text in {self._encoding}: {error}") from error
        except ValueError as error:
            raise SourceError(f"{self._name} is damaged, its compressed data cannot be unpacked") from error
        except OSError as error:
            raise SourceError(f"{self._name} cannot be read: {reason(error)}") from error
