"""How large a reply may be, and how compressed ones are unpacked; must not know where they come from."""

from __future__ import annotations

import zlib

MAX_REPLY_BYTES = 64 * 1024 * 1024
MOST_MEMBERS = 100  # no server sends more than a few

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class TooLargeError(ValueError):
    """Unpacked it is larger than allowed."""


def unpacked(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """`body` without its content encodings (gzip, deflate, identity; a list is undone from its end).

    Raises TooLargeError above `max_bytes`, ValueError for an encoding that is unknown or does not fit.
    """
    for name in reversed(encoding.lower().split(",")):
        match name.strip():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip":
                body = _inflated(body, _GZIP_OR_ZLIB, max_bytes)
            case "deflate":
                body = _inflated(body, _GZIP_OR_ZLIB if body[:1] == b"\x78" else -zlib.MAX_WBITS, max_bytes)
            case other:
                raise ValueError(f"its encoding {other!r} is unknown")
    if len(body) > max_bytes:
        raise TooLargeError
    return body


def _inflated(body: bytes, window_bits: int, max_bytes: int) -> bytes:
    plain = bytearray()
    for _ in range(MOST_MEMBERS):  # gzip may be a row of members; each copies what follows it
        opened = zlib.decompressobj(window_bits)
        try:
            plain += opened.decompress(body, max_bytes + 1 - len(plain))
        except zlib.error:
            raise ValueError("its bytes are not in the encoding that it names") from None
        if len(plain) > max_bytes:
            raise TooLargeError
        if not opened.eof:
            raise ValueError("it ends too early")
        body = opened.unused_data
        if not body:
            return bytes(plain)
    raise ValueError(f"it has more than {MOST_MEMBERS} gzip members")
