"""Owns chunks of text cells and of JSON objects; must not know where rows come from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from rowmill.core.rows.chunks.exact_json import decode_json, encode_json
from rowmill.records import Fault

NO_FAULTS: Mapping[int, Fault] = {}


def pack_indices(indices: Sequence[int]) -> Sequence[int]:
    """The same rising indices as a range where they are contiguous, else as a packed array."""
    if isinstance(indices, range) and indices.step == 1:
        return indices
    if len(indices) and indices[-1] - indices[0] + 1 == len(indices):
        return range(indices[0], indices[-1] + 1)
    return array("Q", indices) if len(indices) else range(0)


def take_indices(indices: Sequence[int], offsets: Sequence[int]) -> Sequence[int]:
    """The indices at these offsets, packed."""
    return pack_indices([indices[offset] for offset in offsets])


def take_faults(faults: Mapping[int, Fault], offsets: Sequence[int]) -> Mapping[int, Fault]:
    """The faults of the rows at these offsets, by their new offsets."""
    if not faults:
        return NO_FAULTS
    return {new: faults[old] for new, old in enumerate(offsets) if old in faults}


PackedFaults = list[tuple[int, int, str, str]]


def pack_faults(faults: Mapping[int, Fault]) -> PackedFaults:
    """Faults as lists, for an encoder."""
    return [(offset, *faults[offset]) for offset in sorted(faults)]


def unpack_faults(packed: PackedFaults) -> Mapping[int, Fault]:
    """The faults that `pack_faults` packed."""
    return {offset: Fault(line, reason, raw) for offset, line, reason, raw in packed}


class _PackedTable(msgspec.Struct, array_like=True):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    faults: PackedFaults


_pack_table = msgspec.msgpack.Encoder().encode
_unpack_table = msgspec.msgpack.Decoder(_PackedTable).decode


@dataclass(frozen=True, slots=True)
class TableChunk:
    """Rows whose cells are all text (CSV, TSV, plain text); a faulted row has no cells."""

    indices: Sequence[int]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    faults: Mapping[int, Fault] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """One mapping a row with the named columns (None: all), in the order of `names`."""
        if names is None or tuple(names) == tuple(self.columns):
            return self.records()
        held = [name for name in names if name in self.columns]
        indices = [list(self.columns).index(name) for name in held]
        return self._picked(held, indices)

    def cells(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """The cells of these columns, all of which there must be, of one row at a time; none may be faulted."""
        indices = [list(self.columns).index(name) for name in names]
        if len(indices) == 1:
            at = indices[0]
            return ((row[at],) for row in self.rows)
        return map(itemgetter(*indices), self.rows)

    def _picked(self, names: list[str], indices: list[int]) -> Iterator[Mapping[str, Any]]:
        if len(indices) == 1:
            name, at = names[0], indices[0]
            return ({name: row[at]} if row else {} for row in self.rows)
        if not indices:
            return ({} for _ in self.rows)
        pick = itemgetter(*indices)
        return (dict(zip(names, pick(row), strict=True)) if row else {} for row in self.rows)

    def records(self) -> Iterator[dict[str, Any]]:
        """One whole row at a time; {} for a faulted one."""
        columns = self.columns
        return (dict(zip(columns, row, strict=False)) for row in self.rows)

    def take(self, offsets: Sequence[int]) -> TableChunk:
        """The rows at these offsets, with their indices."""
        rows = [self.rows[offset] for offset in offsets]
        return TableChunk(take_indices(self.indices, offsets), self.columns, rows, take_faults(self.faults, offsets))

    def encode(self) -> tuple[str, bytes]:
        """("table", MessagePack)."""
        return "table", _pack_table(_PackedTable(self.columns, self.rows, pack_faults(self.faults)))

    @classmethod
    def decode(cls, payload: bytes, indices: Sequence[int]) -> TableChunk:
        """The chunk that `encode` packed; raises msgspec.DecodeError."""
        packed = _unpack_table(payload)
        faults = unpack_faults(packed.faults)
        return cls(pack_indices(indices), tuple(packed.columns), packed.rows, faults)


@dataclass(frozen=True, slots=True)
class ObjectChunk:
    """Rows that are JSON objects, values exact, missing keys missing; a faulted row is {}.

    `is_open`: more rows of the same chunk may follow, which `joined` puts behind it; they had not come yet.
    """

    indices: Sequence[int]
    rows: Sequence[dict[str, Any]]
    faults: Mapping[int, Fault] = field(default_factory=dict)
    is_open: bool = False

    @property
    def columns(self) -> Sequence[str]:
        """The union of the keys, in order of first appearance."""
        return tuple(dict.fromkeys(chain.from_iterable(self.rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """One mapping a row with those of the named columns (None: all) that the row has."""
        if names is None:
            return iter(self.rows)
        return ({name: row[name] for name in names if name in row} for row in self.rows)

    def records(self) -> Iterator[dict[str, Any]]:
        """One whole row at a time, as a dict of the caller's own."""
        return (row.copy() for row in self.rows)

    def take(self, offsets: Sequence[int]) -> ObjectChunk:
        """The rows at these offsets, with their indices."""
        rows = [self.rows[offset] for offset in offsets]
        indices, faults = take_indices(self.indices, offsets), take_faults(self.faults, offsets)
        return ObjectChunk(indices, rows, faults, self.is_open)

    def joined(self, rest: ObjectChunk) -> ObjectChunk:
        """This chunk with the rows behind it that belong to it."""
        indices = pack_indices([*self.indices, *rest.indices])
        faults = {**self.faults, **{len(self) + at: fault for at, fault in rest.faults.items()}}
        return ObjectChunk(indices, [*self.rows, *rest.rows], faults, rest.is_open)

    def encode(self) -> tuple[str, bytes]:
        """("objects", JSON); order of keys kept."""
        return "objects", encode_json([self.rows, pack_faults(self.faults)])

    @classmethod
    def decode(cls, payload: bytes, indices: Sequence[int]) -> ObjectChunk:
        """The chunk that `encode` packed; raises ValueError."""
        rows, faults = decode_json(payload)
        return cls(pack_indices(indices), rows, unpack_faults(faults))
