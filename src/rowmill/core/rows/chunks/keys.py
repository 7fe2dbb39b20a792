"""Owns the key of a row, by which a resumed run knows it again; must not know how keys are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from rowmill.core.rows.chunks.exact_json import SORTED_ENCODER, encode_sorted
from rowmill.core.rows.chunks.rows import TableChunk
from rowmill.ports import Chunk
from rowmill.records import Fault

KEY_BYTES = 16
# Among the names of what a key is made of: the row's index, and (beside it alone) all columns.
INDEX_NAME, ALL_NAMES = "\0index", "\0all"


def row_keys(chunk: Chunk, names: Sequence[str] | None) -> bytes:
    """The rows' keys, 16 bytes each, one after the other.

    A key is a hash of the named columns (None: of the whole row), names and values with their types: 1, 1.0
    and "1" differ, and so do a null and a missing column.  The chunk's layout does not matter.  A fault is keyed
    by its raw line.  With `INDEX_NAME` among the names the row's index is part of the key.
    """
    if names is not None and INDEX_NAME in names:
        rest = [name for name in names if name != INDEX_NAME]
        return _with_indices(row_keys(chunk, None if rest == [ALL_NAMES] else rest), chunk.indices)
    faults = chunk.faults
    named = b"" if names is None else SORTED_ENCODER.encode(tuple(names))
    encode = SORTED_ENCODER.encode
    if isinstance(chunk, TableChunk) and names and not faults and len({*names} & {*chunk.columns}) == len(names):
        # The same without a mapping a row: text cells, none of them missing.
        return b"".join(
            [blake2b(encode(cells) + named, digest_size=KEY_BYTES).digest() for cells in chunk.cells(names)]
        )
    keys = []
    for offset, row in enumerate(chunk.values(names)):
        if faults and offset in faults:
            material = _fault_material(faults[offset])
        else:
            # Invariant: `values` gives the columns in the order of `names`, so the tuple tells them apart.
            values: object = row if names is None else tuple(row.values())
            try:
                material = encode(values)
            except (TypeError, ValueError, RecursionError):
                material = encode_sorted(values)
            if names is not None and len(row) != len(names):
                material += _missing_material(row.keys(), names)
            material += named
        keys.append(blake2b(material, digest_size=KEY_BYTES).digest())
    return b"".join(keys)


def with_index(names: Sequence[str] | None) -> list[str]:
    """The names of what a key is made of, the row's index among them."""
    return [INDEX_NAME, *([ALL_NAMES] if names is None else names)]


def _with_indices(keys: bytes, indices: Sequence[int]) -> bytes:
    return b"".join(
        blake2b(keys[at * KEY_BYTES : (at + 1) * KEY_BYTES] + b"%d" % index, digest_size=KEY_BYTES).digest()
        for at, index in enumerate(indices)
    )


def _fault_material(fault: Fault) -> bytes:
    return b"fault " + fault.raw.encode("utf-8", "surrogatepass")


def _missing_material(held: Iterable[str], names: Sequence[str]) -> bytes:
    present = set(held)
    return b"missing %a" % [index for index, name in enumerate(names) if name not in present]
