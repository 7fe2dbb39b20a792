"""Owns how the cells of a header become names of columns; must not know files or formats."""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.errors import SourceError


def named(cells: Sequence[str]) -> tuple[str, ...]:
    """One empty name stays empty; of several each becomes `column_N`, N its 1-based position."""
    if sum(not cell for cell in cells) < 2:
        return tuple(cells)
    return tuple(cell or f"column_{position}" for position, cell in enumerate(cells, 1))


def refuse_twice(names: Sequence[str], file: str) -> None:
    """Raises SourceError where a name stands more than once."""
    if len(set(names)) == len(names):
        return
    twice = ", ".join(repr(name) for name in sorted({name for name in names if names.count(name) > 1}))
    raise SourceError(f"{file} has more than one column named {twice}: rename all but one")
