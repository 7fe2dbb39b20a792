"""How long text is cut for a message; the limits belong to those who show it."""

from __future__ import annotations


def shortened(text: str, most_chars: int, mark: str = "...") -> str:
    """The text, or its beginning and `mark` where it has more characters than that."""
    return text if len(text) <= most_chars else text[: most_chars - len(mark)] + mark
