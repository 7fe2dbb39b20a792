"""Which rows take part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.rows.chunks import TableChunk
from rowmill.core.rows.selection import select
from rowmill.errors import SourceError
from rowmill.ports import Chunk
from rowmill.records import Fault


def source(rows: int, faults: Mapping[int, Fault] | None = None, size: int = 3) -> Callable[[], Iterator[Chunk]]:
    """`rows` rows whose column `n` is their index."""
    bad = faults or {}

    def chunks() -> Iterator[Chunk]:
        for start in range(0, rows, size):
            indices = range(start, min(start + size, rows))
            cells = [[] if index in bad else [str(index)] for index in indices]
            yield TableChunk(indices, ("n",), cells, {i - start: bad[i] for i in indices if i in bad})

    return chunks


def picked(chunks: Iterator[Chunk]) -> list[int]:
    """Indices of the selected rows, each checked against its value."""
    found = []
    for chunk in chunks:
        for offset, (index, row) in enumerate(zip(chunk.indices, chunk.records(), strict=True)):
            assert offset in chunk.faults or row == {"n": str(index)}
            found.append(index)
    return found


def is_even(row: Mapping[str, Any]) -> bool:
    return int(row["n"]) % 2 == 0


def test_without_wishes_all_rows_take_part() -> None:
    assert picked(select(source(7))) == list(range(7))


def test_where_keeps_indices_in_the_whole_input() -> None:
    assert picked(select(source(7), where=is_even)) == [0, 2, 4, 6]


def test_a_bad_line_passes_where() -> None:
    chunks = list(select(source(7, {3: Fault(5, "bad")}), where=is_even))
    assert picked(iter(chunks)) == [0, 2, 3, 4, 6]
    assert [chunk.faults for chunk in chunks if 3 in chunk.indices] == [{0: Fault(5, "bad")}]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (99, list(range(7)))]
)
def test_limit_takes_the_first_rows(limit: int, expected: list[int]) -> None:
    assert picked(select(source(7), limit=limit)) == expected


def test_limit_stops_reading() -> None:
    read: list[int] = []

    def chunks() -> Iterator[Chunk]:
        for chunk in source(9)():
            read.append(chunk.indices[0])
            yield chunk

    assert picked(select(chunks, limit=4)) == [0, 1, 2, 3]
    assert read == [0, 3]


def test_where_comes_before_sample_and_sample_before_limit() -> None:
    rows = picked(select(source(40), where=is_even, sample=10, limit=4, seed=1))
    assert len(rows) == 4
    assert rows == picked(select(source(40), where=is_even, sample=10, seed=1))[:4]
    assert all(row % 2 == 0 for row in rows)


@given(st.integers(0, 60), st.integers(0, 80), st.integers(0, 2**32), st.integers(1, 11))
def test_a_sample_is_as_large_as_asked_and_in_order(rows: int, sample: int, seed: int, size: int) -> None:
    found = picked(select(source(rows, size=size), sample=sample, seed=seed))
    assert found == sorted(set(found))
    assert len(found) == min(rows, sample)
    assert found == picked(select(source(rows), sample=sample, seed=seed))


def test_every_row_has_the_same_chance_in_a_sample() -> None:
    counts = [0] * 10
    for seed in range(2_000):
        for row in picked(select(source(10), sample=3, seed=seed)):
            counts[row] += 1
    assert all(500 < count < 700 for count in counts)


def test_a_sample_of_standard_input_is_refused_with_advice() -> None:
    with pytest.raises(SourceError, match="--limit"):
        select(source(3), sample=1, rereadable=False)
