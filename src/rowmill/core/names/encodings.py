"""Which names are those of encodings of text."""

from __future__ import annotations


def check_encoding(name: str) -> None:
    """Raises LookupError, with a text for the user, unless this is the name of an encoding of text."""
    try:
        b"".decode(name)
        "".encode(name)
    except (LookupError, UnicodeError, ValueError):
        usual = "utf-8, utf-16, latin-1, cp1252, gb18030, big5, shift_jis"
        raise LookupError(f"no encoding is called {name[:40]!r}; usual are {usual}") from None
