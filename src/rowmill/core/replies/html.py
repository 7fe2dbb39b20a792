"""The text of an HTML page, as far as an error message needs it."""

from __future__ import annotations

_UNREAD = (b"script", b"style")


def without_tags(page: bytes) -> bytes:
    """The page with a space for each tag, comment, script and style sheet.

    What is opened and never closed stays.  Linear in the page: what is not found once is not looked for again.
    """
    lower = page.lower()
    kept: list[bytes] = []
    missing: set[bytes] = set()
    at = 0
    while (start := page.find(b"<", at)) >= 0:
        end = _end_of(lower, start, missing)
        if end is None:
            break
        kept += (page[at:start], b" ")
        at = end
    kept.append(page[at:])
    return b"".join(kept)


def _end_of(lower: bytes, start: int, missing: set[bytes]) -> int | None:
    """Where the tag that begins at `start` ends, with its content where that is no text; None where it does not."""
    if lower.startswith(b"<!--", start):
        end = _after(b"-->", lower, start + 4, missing)
        if end is not None:
            return end
    for name in _UNREAD:
        if lower.startswith(name, start + 1):
            close = _after(b"</" + name, lower, start, missing)
            if close is not None:
                return _after(b">", lower, close, missing)
    return _after(b">", lower, start, missing)


def _after(mark: bytes, text: bytes, start: int, missing: set[bytes]) -> int | None:
    if mark in missing:
        return None
    found = text.find(mark, start)
    if found < 0:
        missing.add(mark)
        return None
    return found + len(mark)
