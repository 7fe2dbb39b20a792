"""Owns what every sink is made from; must not know any format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rowmill.core.rows.outputs import OutputColumns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class OutputShape:
    """What the user decides about an output.

    `split_rows` is how many rows a part has (None: one file); `rows` how many there will be, by which parts are named.
    """

    format: str
    escape_formulas: bool = False
    split_rows: int | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Where and what a sink writes.

    `schema` reads all input once for the types, for formats that need them before the first row; it gives the same
    one each time.
    """

    path: str
    columns: OutputColumns
    schema: Callable[[], pa.Schema]
    escape_formulas: bool = False
