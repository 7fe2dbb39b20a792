"""Owns which rows of the input take part (where, sample, limit); must not know where rows come from."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rowmill.core.sampling import Reservoir
from rowmill.errors import SourceError
from rowmill.ports import Chunk

Where = Callable[[Mapping[str, Any]], bool]


def select(
    chunks: Callable[[], Iterator[Chunk]],
    *,
    where: Where | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    rereadable: bool = True,
) -> Iterator[Chunk]:
    """The chosen rows, in input order, with their row indices in the whole input.

    First `where`, then `sample` (that many of what is left, each set of them equally likely, the same for the
    same seed; reads the input twice), then `limit` (stops reading there).  A line that is not a row passes
    `where`: it has to show up as failed.  Raises SourceError for a sample of what can be read only once.
    """
    if sample is not None and not rereadable:
        raise SourceError(
            "a sample needs to read the input twice, and standard input can be read only once: "
            "write it to a file first, or take the first rows with --limit"
        )
    if where is None and limit is None and sample is None:
        return chunks()

    def matching() -> Iterator[Chunk]:
        return chunks() if where is None else _matching(chunks(), where)

    chosen = matching() if sample is None else _sampled(matching, sample, seed)
    return chosen if limit is None else _first(chosen, limit)


def draw(indices: Iterable[int], size: int, seed: int) -> list[int]:
    """Up to `size` of the indices, each set and each order of them equally likely; the same for the same seed.

    Reads once, in memory for `size` numbers.
    """
    chance = random.Random(seed)
    drawn = Reservoir[int](size, lambda seen: int(chance.random() * seen))
    for index in indices:
        drawn.add(index)
    chance.shuffle(drawn.items)
    return drawn.items


def keep(chunks: Iterable[Chunk], wanted: Callable[[int], bool]) -> Iterator[Chunk]:
    """The rows whose index is wanted."""
    for chunk in chunks:
        yield from _taken(chunk, [offset for offset, index in enumerate(chunk.indices) if wanted(index)])


def _matching(chunks: Iterator[Chunk], where: Where) -> Iterator[Chunk]:
    for chunk in chunks:
        faults = chunk.faults
        rows = enumerate(chunk.values(None))
        yield from _taken(chunk, [offset for offset, row in rows if offset in faults or where(row)])


def _sampled(matching: Callable[[], Iterator[Chunk]], sample: int, seed: int) -> Iterator[Chunk]:
    total = sum(len(chunk) for chunk in matching())
    picks = array("Q", sorted(random.Random(seed).sample(range(total), min(sample, total))))
    start, used = 0, 0
    for chunk in matching():
        if used == len(picks):
            return
        end = start + len(chunk)
        offsets = []
        while used < len(picks) and picks[used] < end:
            offsets.append(picks[used] - start)
            used += 1
        yield from _taken(chunk, offsets)
        start = end


def _first(chunks: Iterator[Chunk], limit: int) -> Iterator[Chunk]:
    left = limit
    while left > 0:
        chunk = next(chunks, None)
        if chunk is None:
            return
        yield from _taken(chunk, range(min(left, len(chunk))))
        left -= len(chunk)


def _taken(chunk: Chunk, offsets: Sequence[int]) -> Iterator[Chunk]:
    if len(offsets) == len(chunk):
        yield chunk
    elif offsets:
        yield chunk.take(offsets)
