"""About how many rows files of lines hold, from their sizes and the beginning of the first; reads no file whole."""

from __future__ import annotations

from pathlib import Path

from rowmill.core.names.files import is_remote
from rowmill.core.names.formats import READABLE
from rowmill.errors import SourceError
from rowmill.io.sources.files import find_files

HEAD_BYTES = 1 << 20
LINES = frozenset({"csv", "jsonl", "text"})


def about_rows(spec: str) -> int | None:
    """Rows of the files that a path or a glob names; None where their sizes do not tell."""
    if spec == "-" or is_remote(spec):
        return None
    try:
        files = [Path(name) for name in find_files(spec)]
        formats = {READABLE.get(file.suffix.lower()) for file in files}
        if not files or not formats <= LINES:
            return None
        with files[0].open("rb") as stream:
            head = stream.read(HEAD_BYTES)
        total_bytes = sum(file.stat().st_size for file in files)
    except (OSError, SourceError):
        return None
    if not head:
        return None
    is_table = "csv" in formats
    rows = _lines(head, is_table) * total_bytes / len(head) - (len(files) if is_table else 0)
    return max(1, round(rows))


def _lines(head: bytes, is_table: bool) -> int:
    """Lines that end in it, and a last one that only the file's end ends; in a table not those inside of quotes."""
    outside = head.split(b'"')[::2] if is_table else [head]
    ends = sum(part.count(b"\n") for part in outside)
    return ends + (len(head) < HEAD_BYTES and not head.endswith(b"\n"))
