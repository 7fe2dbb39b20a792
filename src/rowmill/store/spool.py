"""Brings the input into the run file ahead of the workers, and hands out the rows that are still pending.

Two threads: the spool reads the source and compares it with what is stored, chunk by chunk; the feed's thread walks
over the chunks that the spool has passed.  What does not fit into memory thus waits on disk, standard input too.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rowmill.core.requests.routing import Share
from rowmill.core.rows.chunks import row_keys
from rowmill.errors import RowmillError
from rowmill.ports import Chunk
from rowmill.records import Fault, Row
from rowmill.store import chunktable, meta
from rowmill.store import connection as connections
from rowmill.store.chunktable import StoredChunk
from rowmill.store.duplicates import follow
from rowmill.store.history import past_of
from rowmill.store.matching import Matched, match
from rowmill.store.packing import Packer
from rowmill.store.reader import count_rows
from rowmill.store.writer import Writer

CHUNKS_UNCOMMITTED = 8
CHUNKS_AHEAD = 24
REST_PER_WORK = 3.0


@dataclass(frozen=True, slots=True)
class SpoolRules:
    """`key_names`: columns that keys are made of (None: all); `value_names`: columns that workers need (None: all).

    `check_columns` is called with the names of all columns seen so far whenever a new one turns up, and may raise.
    `counts_chosen`: a row's place is counted among the rows of the run file, not among those of the input.
    `dedupe`: of rows with one key only the first is handed out.  `only`: indices of the rows that are handed out
    (None: all that are pending).
    """

    key_names: Sequence[str] | None
    value_names: Sequence[str] | None
    check_columns: Callable[[Sequence[str]], None]
    dedupe: bool = False
    only: Set[int] | None = None
    counts_chosen: bool = False


class Spool:
    """One session's input.  `chunks` None means: go on from what is stored.

    `moved` is called in the spool's thread when rows had to be matched again, with what was found and the counts by
    status that changed; `followed` in the feed's when that many rows turned out to be duplicates.
    """

    def __init__(
        self,
        writer: Writer,
        rules: SpoolRules,
        chunks: Iterator[Chunk] | None,
        moved: Callable[[Matched, Mapping[str, int]], None],
        followed: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._writer = writer
        self._rules = rules
        self._chunks = chunks
        self._moved = moved
        self._followed = followed
        self._key_names = chunktable.key_names_text(rules.key_names)
        self._packer = Packer()
        self._state = threading.Condition()
        self._passed = -1
        self._passed_chunks = 0
        self._fed_chunks = 0
        self._hungry = True
        self._appending = False
        self._complete = False
        self._stopping = False
        self._error: Exception | None = None
        self._columns: dict[str, None] = {}
        self._slots = threading.Semaphore(CHUNKS_UNCOMMITTED)
        self.rows_seen = 0
        self.total: int | None = None
        self._thread = threading.Thread(target=self._run, name="rowmill-spool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def read_all(self) -> None:
        """Brings the whole input in, in the calling thread, before a row is handed out.  Raises what broke it off."""
        self._run()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the reading at the next chunk and wakes whoever waits for one."""
        with self._state:
            self._stopping = True
            self._state.notify_all()

    def join(self, timeout_s: float) -> None:
        """Waits for the spool's thread; reading standard input may keep it."""
        self._thread.join(timeout_s)

    def pending(self, share: Share | None = None) -> Iterator[Sequence[Row]]:
        """Pending rows, a chunk at a time, in input order; blocks for chunks, raises what broke the reading off.

        `share` says which rows (None: all); several may be walked at once, each in a thread of its own.
        """
        if share is not None and share.is_everything:
            share = None
        reader = connections.reader(self._writer.path)
        packer = Packer(meta.dictionary(reader))
        try:
            after, place, chunks = -1, 0, 0
            while True:
                if not self._wait_for_chunk(after):
                    return
                stored = chunktable.next_chunk(reader, after)
                if stored is None:
                    return
                after = stored.id
                if share is None or share.may_hold(*self._span(stored, place)):
                    yield self._pending_of(reader, stored, packer, share, place)
                place += stored.row_count
                chunks += 1
                with self._state:
                    self._fed_chunks = max(self._fed_chunks, chunks)
                    self._state.notify_all()
        finally:
            reader.close()

    def _span(self, stored: StoredChunk, place: int) -> tuple[int, int]:
        """The places [first, end) of a chunk's rows, as shares count them."""
        return (place, place + stored.row_count) if self._rules.counts_chosen else (stored.id, stored.last + 1)

    def _wait_for_chunk(self, after: int) -> bool:
        with self._state:
            self._hungry = self._passed <= after
            self._state.notify_all()
            if self._hungry:
                self._writer.hurry()
            while self._passed <= after and not self._complete and not self._stopping and self._error is None:
                self._state.wait()
            self._hungry = False
            if self._stopping:
                return False
            if self._passed <= after and self._error is not None:
                raise self._error
            return self._passed > after

    def _pending_of(
        self, reader: sqlite3.Connection, stored: StoredChunk, packer: Packer, share: Share | None, place: int
    ) -> Sequence[Row]:
        first, last = stored.id, stored.last
        indices = stored.indices()
        only = self._rules.only
        if only is not None and only.isdisjoint(indices):
            return ()
        states = dict(
            reader.execute("SELECT id, requeued FROM rows WHERE id BETWEEN ? AND ?", (first, last)).fetchall()
        )
        offsets = [
            at for at, index in enumerate(indices) if states.get(index, 1) != 0 and (only is None or index in only)
        ]
        chunk: Chunk | None = None
        strays: Mapping[int, str] = {}
        if share is not None and offsets:
            chunk = chunktable.load_chunk(stored, packer)
            offsets, strays = self._claimed(chunk, offsets, share, place)
        if self._rules.dedupe and offsets:
            offsets = self._leading(stored, offsets, chunktable.load_chunk(stored, packer).faults)
        if not offsets:
            return ()
        if chunk is None:
            chunk = chunktable.load_chunk(stored, packer)
        if len(offsets) < len(chunk):
            strays = {at: strays[old] for at, old in enumerate(offsets) if old in strays}
            chunk = chunk.take(offsets)
        past = past_of(reader, first, last, states)
        values = chunk.values(self._rules.value_names)
        if not past.attempts and not chunk.faults and not strays:
            return list(map(Row, chunk.indices, values))
        faults = {**chunk.faults, **{at: Fault(0, why) for at, why in strays.items()}}
        return past.rows(chunk.indices, values, faults, packer)

    def _claimed(
        self, chunk: Chunk, offsets: Sequence[int], share: Share, place: int
    ) -> tuple[list[int], dict[int, str]]:
        """The offsets of rows in a share, and of some why they fail."""
        wanted, counts = set(offsets), self._rules.counts_chosen
        rows = enumerate(zip(chunk.indices, chunk.values(self._rules.value_names), strict=True))
        return share.claimed(
            (at, place + at if counts else index, None if at in chunk.faults else values)
            for at, (index, values) in rows
            if at in wanted
        )

    def _leading(self, stored: StoredChunk, offsets: Sequence[int], faults: Mapping[int, Fault]) -> list[int]:
        """Those of the offsets whose rows are to be sent; the others are written as followers."""
        keys, indices = list(chunktable.split_keys(stored.keys)), stored.indices()
        asked = [(keys[at], indices[at]) for at in offsets if at not in faults]
        version = self._writer.version
        followers = self._writer.do(lambda c: follow(c, asked, stored.key_names, version))
        if followers:
            self._followed(len(followers))
        return [at for at in offsets if indices[at] not in followers]

    def _run(self) -> None:
        try:
            with connections.translated(self._writer.path):
                if self._chunks is None:
                    self._pass_stored()
                else:
                    self._compare(self._chunks)
        except Exception as error:  # handed to whoever waits for rows; the run stops on it
            with self._state:
                self._error = error
                self._state.notify_all()

    def _pass_stored(self) -> None:
        reader = connections.reader(self._writer.path)
        rows, last = reader.execute("SELECT coalesce(sum(row_count), 0), coalesce(max(id), -1) FROM chunks").fetchone()
        reader.close()
        self._finish(int(rows), int(last))

    def _finish(self, rows: int, last: int) -> None:
        with self._state:
            self._passed = max(last, self._passed)
            self._complete = True
            self.rows_seen = self.total = rows
            self._state.notify_all()

    def _compare(self, chunks: Iterator[Chunk]) -> None:
        """Walks over input and stored chunks side by side for as long as they agree."""
        reader = connections.reader(self._writer.path)
        try:
            orphans = reader.execute("SELECT 1 FROM rows WHERE id < 0 LIMIT 1").fetchone() is not None
            self._columns = dict.fromkeys(meta.columns(reader))
            after = -1
            storing = True
            for chunk in chunks:
                if self._stopping:
                    return
                if not len(chunk):
                    continue
                stored = chunktable.next_chunk(reader, after) if storing else None
                storing = stored is not None
                started = time.monotonic()
                if stored is None and not orphans:
                    self._append(chunk)
                elif stored is None or not self._agrees(stored, chunk, reader):
                    self._match(reader, stored, chunk, chunks)
                    return
                after = chunk.indices[0]
                self.rows_seen += len(chunk)
                self._rest(time.monotonic() - started)
            left = chunktable.next_chunk(reader, after) if storing else None
            if left is not None:
                self._match(reader, left, None, chunks)
                return
        finally:
            reader.close()
        self._writer.do(lambda c: meta.put(c, "complete", "1"))
        self._finish(self.rows_seen, after)

    def _rest(self, worked_s: float) -> None:
        """Leaves the processor to the workers once enough chunks lie ahead of them."""
        with self._state:
            ahead = self._passed_chunks - self._fed_chunks
            if ahead > CHUNKS_AHEAD and not self._hungry and not self._stopping:
                self._state.wait_for(lambda: self._stopping or self._hungry, min(worked_s * REST_PER_WORK, 0.5))

    def _agrees(self, stored: StoredChunk, chunk: Chunk, reader: sqlite3.Connection) -> bool:
        """Whether the chunk is the stored one, perhaps longer at the input's end; refreshes what differs besides."""
        keys = row_keys(chunk, chunktable.key_names_of(stored.key_names))
        indices, known = chunk.indices, stored.indices()
        if len(known) > len(indices) or list(indices[: len(known)]) != list(known):
            return False
        if not keys.startswith(stored.keys):
            return False
        if len(known) < len(indices) and chunktable.next_chunk(reader, stored.id) is not None:
            return False
        layout, payload = chunk.encode()
        if (
            len(known) == len(indices)
            and stored.digest == chunktable.digest(layout, payload)
            and stored.key_names == self._key_names
        ):
            self._pass(stored.id)
        else:
            self._append(chunk)
        return True

    def _append(self, chunk: Chunk) -> None:
        """Stores a chunk in place of what stands under its id; it may be fed once it is committed."""
        stored = chunktable.store_chunk(chunk, row_keys(chunk, self._rules.key_names), self._key_names, self._packer)
        columns = self._new_columns(chunk)
        first = not self._appending
        self._appending = True
        if not self._slots.acquire(blocking=False):
            self._writer.hurry()
            self._slots.acquire()

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", stored)
            self._writer.break_seal(connection)
            if first:
                meta.put(connection, "complete", "0")
            if columns is not None:
                meta.put_columns(connection, columns)

        future = self._writer.submit(insert)
        future.add_done_callback(lambda done: self._appended(stored.id, done.exception()))
        with self._state:
            is_awaited = self._hungry
        if is_awaited:
            self._writer.hurry()

    def _appended(self, chunk_id: int, error: BaseException | None) -> None:
        self._slots.release()
        if error is None:
            self._pass(chunk_id)
            return
        with self._state:
            self._error = error if isinstance(error, RowmillError) else RowmillError(str(error))
            self._state.notify_all()

    def _pass(self, chunk_id: int) -> None:
        with self._state:
            self._passed = max(self._passed, chunk_id)
            self._passed_chunks += 1
            self._state.notify_all()

    def _new_columns(self, chunk: Chunk) -> list[str] | None:
        before = len(self._columns)
        self._columns.update(dict.fromkeys(chunk.columns))
        if len(self._columns) == before:
            return None
        self._rules.check_columns(list(self._columns))
        return list(self._columns)

    def _match(
        self,
        reader: sqlite3.Connection,
        stored: StoredChunk | None,
        chunk: Chunk | None,
        rest: Iterator[Chunk],
    ) -> None:
        """From here on the input differs: reads it to its end and matches by key before anything more is sent."""
        starts = [] if stored is None else [stored.id]
        starts += [] if chunk is None else [chunk.indices[0]]
        first = min(starts)
        names = chunktable.key_names_of(stored.key_names) if stored else self._rules.key_names
        last = first

        def described() -> Iterator[tuple[StoredChunk, bytes]]:
            nonlocal last
            for one in _chained(chunk, rest):
                keys = row_keys(one, self._rules.key_names)
                same = chunktable.key_names_text(names) == self._key_names
                self._new_columns(one)
                last = one.indices[0]
                yield (
                    chunktable.store_chunk(one, keys, self._key_names, self._packer),
                    keys if same else row_keys(one, names),
                )

        def task(connection: sqlite3.Connection) -> tuple[Matched, Mapping[str, int]]:
            before = count_rows(connection)
            matched = match(connection, first, first, described())
            self._writer.break_seal(connection)
            meta.put_columns(connection, list(self._columns))
            meta.put(connection, "complete", "1")
            after = count_rows(connection)
            changed = {s: after.get(s, 0) - before.get(s, 0) for s in {*before, *after}}
            return matched, {s: n for s, n in changed.items() if n}

        matched, changed = self._writer.do(task)
        self._moved(matched, changed)
        self._finish(self.rows_seen + matched.rows, last)


def _chained(first: Chunk | None, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    if first is not None:
        yield first
    for chunk in rest:
        if len(chunk):
            yield chunk
