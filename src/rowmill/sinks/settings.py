"""Owns what every sink is made from; must not know any format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rowmill.outputs import OutputColumns
from rowmill.ports import Chunk


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Where and what a sink writes.

    `chunks` gives all input that the output may hold, for formats that need the types before the first row.
    """

    path: str
    columns: OutputColumns
    chunks: Callable[[], Iterable[Chunk]]
    escape_formulas: bool = False
