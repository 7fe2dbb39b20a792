"""Owns chunks: about 1,000 consecutive rows of input, immutable, in four layouts; must not know files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.core.rows.chunks.arrow import ArrowChunk
from rowmill.core.rows.chunks.cells import CellChunk
from rowmill.core.rows.chunks.exact_json import decode_json, encode_json
from rowmill.core.rows.chunks.keys import KEY_BYTES, row_keys, with_index
from rowmill.core.rows.chunks.rows import ObjectChunk, TableChunk
from rowmill.errors import RunFileError
from rowmill.ports import Chunk

__all__ = [
    "KEY_BYTES",
    "ArrowChunk",
    "CellChunk",
    "ObjectChunk",
    "TableChunk",
    "decode",
    "decode_json",
    "encode_json",
    "row_keys",
    "with_index",
]


def decode(layout: str, payload: bytes, indices: Sequence[int]) -> Chunk:
    """The chunk whose `encode()` gave this layout and payload; raises RunFileError when it cannot be read."""
    match layout:
        case "table":
            reader: type[TableChunk | ObjectChunk | ArrowChunk | CellChunk] = TableChunk
        case "objects":
            reader = ObjectChunk
        case "arrow":
            reader = ArrowChunk
        case "cells":
            reader = CellChunk
        case _:
            raise RunFileError(f"rows are stored in a layout ({layout}) that this version does not know")
    try:
        chunk = reader.decode(payload, indices)
    except (ValueError, TypeError, OSError, EOFError, StopIteration, msgspec.MsgspecError) as error:
        raise RunFileError(f"stored rows {_span(indices)} are damaged and cannot be read") from error
    if len(chunk) != len(indices):
        raise RunFileError(f"stored rows {_span(indices)} are damaged: {len(chunk)} rows of {len(indices)}")
    return chunk


def _span(indices: Sequence[int]) -> str:
    return f"{indices[0]} to {indices[-1]}" if len(indices) else "(none)"
