"""Chunks of input as the run file holds them: one table row a chunk, with keys, digest and packed bytes."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import zstandard

from rowmill.core.rows.chunks import decode
from rowmill.errors import RunFileError
from rowmill.ports import Chunk
from rowmill.store.packing import Packer

KEY_BYTES = 16


class StoredChunk(NamedTuple):
    """A row of the table chunks; see schema.sql."""

    id: int
    row_count: int
    packed_indices: bytes | None
    key_names: str
    keys: bytes
    digest: bytes
    layout: str
    payload: bytes

    def indices(self) -> Sequence[int]:
        """0-based index of each row in the input."""
        return _indices(self.id, self.row_count, self.packed_indices)

    @property
    def last(self) -> int:
        return self.indices()[-1]


def store_chunk(chunk: Chunk, keys: bytes, key_names: str, packer: Packer) -> StoredChunk:
    """Packs a chunk for the table."""
    layout, payload = chunk.encode()
    indices = chunk.indices
    contiguous = indices[-1] - indices[0] == len(indices) - 1
    return StoredChunk(
        id=indices[0],
        row_count=len(chunk),
        packed_indices=None if contiguous else array("Q", indices).tobytes(),
        key_names=key_names,
        keys=keys,
        digest=digest(layout, payload),
        layout=layout,
        payload=packer.pack_chunk(payload),
    )


def digest(layout: str, payload: bytes) -> bytes:
    """Tells whether two chunks hold the same rows, columns outside the prompt included."""
    return blake2b(payload, digest_size=16, person=layout.encode()).digest()


def load_chunk(stored: StoredChunk, packer: Packer) -> Chunk:
    """Unpacks a chunk; raises RunFileError when its bytes are damaged."""
    try:
        return decode(stored.layout, packer.unpack_chunk(stored.payload), stored.indices())
    except (zstandard.ZstdError, ValueError) as error:
        raise RunFileError(
            f"rows {stored.id} to {stored.last} of the run file are damaged ({error}); the other rows can be exported"
        ) from None


def next_chunk(connection: sqlite3.Connection, after: int) -> StoredChunk | None:
    """The first chunk whose id is above `after`."""
    row = connection.execute("SELECT * FROM chunks WHERE id > ? ORDER BY id LIMIT 1", (after,)).fetchone()
    return None if row is None else StoredChunk(*row)


def next_rows(connection: sqlite3.Connection, chunk_id: int, last: int) -> StoredChunk | None:
    """The chunk of this id where it has grown beyond the index `last`, else the next one."""
    row = connection.execute("SELECT id, row_count, places FROM chunks WHERE id = ?", (chunk_id,)).fetchone()
    if row is not None and _indices(*row)[-1] > last:
        return next_chunk(connection, chunk_id - 1)
    return next_chunk(connection, chunk_id)


def last_index(connection: sqlite3.Connection) -> int:
    """The index of the last row that is stored, -1 where there is none."""
    row = connection.execute("SELECT id, row_count, places FROM chunks ORDER BY id DESC LIMIT 1").fetchone()
    return -1 if row is None else _indices(*row)[-1]


def _indices(first: int, row_count: int, packed: bytes | None) -> Sequence[int]:
    return range(first, first + row_count) if packed is None else array("Q", packed)


def split_keys(keys: bytes) -> Iterator[bytes]:
    """One key of 16 bytes a row."""
    return (keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))


def key_names_text(names: Sequence[str] | None) -> str:
    """The columns that keys are made of, as the table keeps them."""
    return json.dumps(None if names is None else sorted(names), ensure_ascii=False)


def key_names_of(text: str) -> list[str] | None:
    names = json.loads(text)
    return None if names is None else [str(name) for name in names]
