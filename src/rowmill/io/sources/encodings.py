"""Owns what bytes at the head of a file tell about its encoding; must not know formats or rows."""

from __future__ import annotations

import codecs
import re

from rowmill.core.names import encodings
from rowmill.errors import SourceError

_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_OTHER_KINDS = {
    b"\x1f\x8b": "gzip data: let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "zstd data: let its name end in .zst",
    b"PAR1": "a Parquet file: let its name end in .parquet",
    b"ARROW1": "an Arrow file: let its name end in .arrow",
    b"PK\x03\x04": "a zip file or spreadsheet: unpack it, or let its name end in .xlsx",
    b"BZh": "bzip2 data: unpack it",
    b"\xfd7zXZ": "xz data: unpack it",
    b"SQLite format 3": "an SQLite database",
}
# Encodings in which whole words are beyond ASCII.  Left to all that the library knows, rare ones win over these.
_OF_WORDS = (
    "cp1250",
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp874",
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "cp949",
)
_SHIFT_JIS_KANA = (b"\x82", b"\x83")
_HIGH_RUNS = re.compile(rb"[\x80-\xff]+")


def check_encoding(encoding: str) -> None:
    """Raises SourceError unless this is the name of an encoding of text."""
    try:
        encodings.check_encoding(encoding)
    except LookupError as error:
        raise SourceError(f"--encoding: {error}") from None


def is_utf8(encoding: str) -> bool:
    """Whether this names UTF-8, with or without a byte order mark."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def check_head(name: str, head: bytes) -> None:
    """Raises SourceError when the first bytes of a file are not UTF-8 text; says what they seem to be."""
    is_binary = b"\0" in head or not head.isascii()
    for magic, what in _OTHER_KINDS.items():
        if is_binary and head.startswith(magic):
            raise SourceError(f"{name} is {what}")
    certain = _marked_or_wide(head)
    if certain is not None:
        raise SourceError(f"{name} is not UTF-8 text; it looks like {certain}: try --encoding {certain}")
    if not head.isascii() and _is_mostly_undecodable(head):
        guess = _guess_bytes(head)
        raise SourceError(f"{name} is not UTF-8 text; it is perhaps {guess}: try --encoding {guess}")


def _marked_or_wide(head: bytes) -> str | None:
    """The encoding that a byte order mark or the zeros of UTF-16 tell, None where neither is there."""
    for bom, encoding in _BOMS.items():
        if head.startswith(bom):
            return encoding
    # An even number of bytes, so that no line feed loses its zero.
    return _guess_utf16(head[:2_000])


def _guess_utf16(head: bytes) -> str | None:
    """UTF-16 without a mark: many zeros, all at odd or all at even offsets, one beside every line feed."""
    feeds = head.count(b"\n")
    if head.count(0) * (10 if feeds else 3) < max(len(head), 10):
        return None
    odd, even = head[1::2].count(0), head[::2].count(0)
    if odd > 4 * even and head.count(b"\n\0") == feeds:
        return "utf-16-le"
    if even > 4 * odd and head.count(b"\0\n") == feeds:
        return "utf-16-be"
    return None


def _is_mostly_undecodable(head: bytes) -> bool:
    """Whether whole lines, not one here and there, are something else than UTF-8."""
    lines = head.split(b"\n")[: -1 if head.count(b"\n") else None]
    beyond_ascii = [line for line in lines if not line.isascii()]
    bad = sum(not _is_decodable(line) for line in beyond_ascii)
    if bad * 2 <= len(beyond_ascii):
        return False
    return (bad >= 3 and bad * 10 >= len(lines)) or (bad >= 2 and bad * 2 >= len(lines))


def _is_decodable(line: bytes, encoding: str = "utf-8") -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _guess_bytes(head: bytes) -> str:
    """Letters that stand alone among ASCII are Western Europe's; of whole words in other letters a library decides."""
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    runs = _HIGH_RUNS.findall(head)
    high_bytes = sum(map(len, runs))
    if 2 * high_bytes >= 3 * len(runs) and (guess := _guess_words(whole_lines, high_bytes)) is not None:
        return guess
    # Latin-1 has only control characters in 0x80 to 0x9F, where Windows has quotes, dashes and the euro.
    is_windows = any(byte in range(0x80, 0xA0) for byte in head)
    return "cp1252" if is_windows and _is_decodable(whole_lines, "cp1252") else "latin-1"


def _guess_words(text: bytes, high_bytes: int) -> str | None:
    # The library takes short Japanese texts for Korean; all kana of Shift_JIS begin with one of two bytes.
    kana = sum(map(text.count, _SHIFT_JIS_KANA))
    if kana * 5 >= high_bytes and _is_decodable(text, "cp932"):
        return "cp932"
    from charset_normalizer import from_bytes

    best = from_bytes(text, cp_isolation=[*_OF_WORDS]).best()
    return None if best is None else best.encoding
