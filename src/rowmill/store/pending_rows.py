"""Walks over the stored chunks, in a feed's thread, and hands out the rows that are still pending.

It must not know where the input comes from: which chunks are whole it hears from the spool (see `input_progress`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rowmill.core.requests.routing import Partition
from rowmill.ports import Chunk
from rowmill.records import Fault, Row
from rowmill.store import chunktable, meta
from rowmill.store import connection as connections
from rowmill.store.chunktable import StoredChunk
from rowmill.store.duplicates import follow
from rowmill.store.history import past_of
from rowmill.store.input_progress import InputProgress
from rowmill.store.packing import Packer
from rowmill.store.writer import Writer


@dataclass(frozen=True, slots=True)
class PendingRules:
    """`value_names`: columns that workers need (None: all).  `only`: indices of the rows that are handed out (None:
    all that are pending).  `dedupe`: of rows with one key only the first is handed out.

    `counts_chosen`: shares count a row among those of the run file, not among those of the input.
    """

    value_names: Sequence[str] | None
    only: Set[int] | None = None
    dedupe: bool = False
    counts_chosen: bool = False


class _Seen:
    """How far a walk has come: the chunk at hand, its last row's index, and the rows of the chunks before it."""

    def __init__(self) -> None:
        self.chunk_id = self.last = -1
        self.rows_before = self.chunks = self._rows = 0

    def go_to(self, stored: StoredChunk) -> None:
        """The next chunk, or the one at hand, which has grown."""
        if stored.id != self.chunk_id:
            self.rows_before += self._rows
            self.chunks += 1
        self.chunk_id, self.last, self._rows = stored.id, stored.last, stored.row_count


class PendingRows:
    """The pending rows of one session.  `followed` is called when that many rows turned out to be duplicates."""

    def __init__(
        self,
        writer: Writer,
        progress: InputProgress,
        rules: PendingRules,
        followed: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._writer = writer
        self._progress = progress
        self._rules = rules
        self._followed = followed

    def walk(self, partition: Partition | None = None) -> Iterator[Sequence[Row]]:
        """Pending rows, a chunk at a time, in input order; blocks for chunks, raises what broke the reading off.

        `partition` says which rows (None: all); several may be walked at once, each in a thread of its own.
        """
        if partition is not None and partition.is_everything:
            partition = None
        with contextlib.closing(connections.reader(self._writer.path)) as connection:
            packer = Packer(meta.dictionary(connection))
            seen = _Seen()
            while self._progress.wait_for_rows(seen.last, self._writer.hurry):
                stored = chunktable.next_rows(connection, seen.chunk_id, seen.last)
                if stored is None:
                    return
                after = seen.last
                seen.go_to(stored)
                if partition is None or partition.may_hold(*self._span(stored, seen.rows_before)):
                    rows = self._pending_of(connection, stored, packer, partition, seen.rows_before)
                    yield [row for row in rows if row.index > after] if after >= stored.id else rows
                self._progress.chunks_fed(seen.chunks)

    def _span(self, stored: StoredChunk, rows_before: int) -> tuple[int, int]:
        """The numbers [first, end) of a chunk's rows, as partitions count them."""
        if self._rules.counts_chosen:
            return rows_before, rows_before + stored.row_count
        return stored.id, stored.last + 1

    def _pending_of(
        self,
        connection: sqlite3.Connection,
        stored: StoredChunk,
        packer: Packer,
        partition: Partition | None,
        rows_before: int,
    ) -> Sequence[Row]:
        first, last = stored.id, stored.last
        indices = stored.indices()
        only = self._rules.only
        if only is not None and only.isdisjoint(indices):
            return ()
        states = dict(
            connection.execute("SELECT id, requeued FROM rows WHERE id BETWEEN ? AND ?", (first, last)).fetchall()
        )
        offsets = [
            at for at, index in enumerate(indices) if states.get(index, 1) != 0 and (only is None or index in only)
        ]
        chunk: Chunk | None = None
        unassigned: Mapping[int, str] = {}
        if partition is not None and offsets:
            chunk = chunktable.load_chunk(stored, packer)
            offsets, unassigned = self._claimed(chunk, offsets, partition, rows_before)
        if self._rules.dedupe and offsets:
            offsets = self._leading(stored, offsets, chunktable.load_chunk(stored, packer).faults, partition)
        if not offsets:
            return ()
        if chunk is None:
            chunk = chunktable.load_chunk(stored, packer)
        if len(offsets) < len(chunk):
            unassigned = {at: unassigned[old] for at, old in enumerate(offsets) if old in unassigned}
            chunk = chunk.take(offsets)
        past = past_of(connection, first, last, states, self._writer.versions)
        values = chunk.values(self._rules.value_names)
        if not past.attempts and not chunk.faults and not unassigned:
            return list(map(Row, chunk.indices, values))
        faults = {**chunk.faults, **{at: Fault(0, why) for at, why in unassigned.items()}}
        return past.rows(chunk.indices, values, faults, packer)

    def _claimed(
        self, chunk: Chunk, offsets: Sequence[int], partition: Partition, rows_before: int
    ) -> tuple[list[int], dict[int, str]]:
        """The offsets of rows in a partition, and of some why they fail."""
        wanted, counts = set(offsets), self._rules.counts_chosen
        rows = enumerate(zip(chunk.indices, chunk.values(self._rules.value_names), strict=True))
        return partition.claimed(
            (at, rows_before + at if counts else index, None if at in chunk.faults else values)
            for at, (index, values) in rows
            if at in wanted
        )

    def _leading(
        self, stored: StoredChunk, offsets: Sequence[int], faults: Mapping[int, Fault], partition: Partition | None
    ) -> list[int]:
        """Those of the offsets whose rows are to be sent; the others are written as followers.

        Rows that are meant for different endpoints are no duplicates of each other.
        """
        keys, indices = list(chunktable.split_keys(stored.keys)), stored.indices()
        whose = b"" if partition is None or partition.lane is None else b"%d" % partition.lane
        asked = [(keys[at] + whose, indices[at]) for at in offsets if at not in faults]
        version = self._writer.version
        followers = self._writer.do(lambda c: follow(c, asked, stored.key_names, version))
        if followers:
            self._followed(len(followers))
        return [at for at in offsets if indices[at] not in followers]
