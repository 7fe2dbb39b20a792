"""Owns chunks of cells of any plain kind (numbers, text, bytes, null), as SQLite has them; must not know databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowmill.core.rows.chunks.rows import (
    PackedFaults,
    pack_faults,
    pack_indices,
    take_faults,
    take_indices,
    unpack_faults,
)
from rowmill.records import Fault


class _PackedCells(msgspec.Struct, array_like=True):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    faults: PackedFaults


_pack_cells = msgspec.msgpack.Encoder().encode
_unpack_cells = msgspec.msgpack.Decoder(_PackedCells).decode


@dataclass(frozen=True, slots=True)
class CellChunk:
    """Rows of cells, each int (64 bits), float, str, bytes or None; a faulted row has no cells."""

    indices: Sequence[int]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    faults: Mapping[int, Fault] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """One mapping a row with the named columns (None: all), in the order of `names`."""
        if names is None:
            return self.records()
        indices = {name: at for at, name in enumerate(self.columns)}
        held = [(name, indices[name]) for name in names if name in indices]
        return ({name: row[at] for name, at in held} if row else {} for row in self.rows)

    def records(self) -> Iterator[dict[str, Any]]:
        """One whole row at a time; {} for a faulted one."""
        columns = self.columns
        return (dict(zip(columns, row, strict=False)) for row in self.rows)

    def take(self, offsets: Sequence[int]) -> CellChunk:
        """The rows at these offsets, with their indices."""
        rows = [self.rows[offset] for offset in offsets]
        return CellChunk(take_indices(self.indices, offsets), self.columns, rows, take_faults(self.faults, offsets))

    def encode(self) -> tuple[str, bytes]:
        """("cells", MessagePack)."""
        return "cells", _pack_cells(_PackedCells(self.columns, self.rows, pack_faults(self.faults)))

    @classmethod
    def decode(cls, payload: bytes, indices: Sequence[int]) -> CellChunk:
        """The chunk that `encode` packed; raises msgspec.DecodeError."""
        packed = _unpack_cells(payload)
        return cls(pack_indices(indices), tuple(packed.columns), packed.rows, unpack_faults(packed.faults))
