"""Reads the input into the run file, in a thread of its own and ahead of the workers.

It compares input and stored chunks side by side and matches rows by key from where they differ.  What does not fit
into memory thus waits on disk, standard input too.  It must not know who takes the rows (see `pending_rows`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rowmill.core.rows.chunks import ObjectChunk, row_keys
from rowmill.errors import RowmillError
from rowmill.ports import Chunk
from rowmill.store import chunktable, meta
from rowmill.store import connection as connections
from rowmill.store.chunktable import StoredChunk
from rowmill.store.input_progress import InputProgress
from rowmill.store.matching import Matched, match
from rowmill.store.packing import Packer
from rowmill.store.totals import count_rows
from rowmill.store.writer import Writer

CHUNKS_UNCOMMITTED = 8
INSERT_NEXT = "INSERT INTO next_chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SpoolRules:
    """`key_names`: columns that keys are made of (None: all).

    `check_columns` is called with the names of all columns seen so far whenever a new one turns up, and may raise.
    `moved` is called in the spool's thread when rows had to be matched again, with what was found and the counts by
    status that changed.  With `is_sample` what is read is not the whole input.
    """

    key_names: Sequence[str] | None
    check_columns: Callable[[Sequence[str]], None]
    moved: Callable[[Matched, Mapping[str, int]], None] = lambda matched, changed: None
    is_sample: bool = False


class Spool:
    """One session's input.  `chunks` None means: go on from what is stored.  `progress` tells how far it has come."""

    def __init__(self, writer: Writer, rules: SpoolRules, chunks: Iterator[Chunk] | None) -> None:
        self._writer = writer
        self._rules = rules
        self._chunks = chunks
        self._key_names = chunktable.key_names_text(rules.key_names)
        self._packer = Packer()
        self._appending = False
        self._columns: dict[str, None] = {}
        self._slots = threading.Semaphore(CHUNKS_UNCOMMITTED)
        self._rows_seen = 0
        self._thread = threading.Thread(target=self._run, name="rowmill-spool", daemon=True)
        self.progress = InputProgress()

    def start(self) -> None:
        self._thread.start()

    def read_all(self) -> None:
        """Brings the whole input in, in the calling thread, before a row is handed out.  Raises what broke it off."""
        self._run()
        if self.progress.error is not None:
            raise self.progress.error

    def join(self, timeout_s: float) -> None:
        """Waits for the spool's thread; reading standard input may keep it."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with connections.translated(self._writer.path):
                if self._chunks is None:
                    self._take_stored()
                else:
                    self._compare(self._chunks)
        except Exception as error:  # raised where rows are waited for, which stops the run
            self.progress.fail(error)

    def _take_stored(self) -> None:
        """All that is stored may be fed as it is."""
        with contextlib.closing(connections.reader(self._writer.path)) as reader:
            (rows,) = reader.execute("SELECT coalesce(sum(row_count), 0) FROM chunks").fetchone()
            self.progress.complete(int(rows), chunktable.last_index(reader))

    def _compare(self, chunks: Iterator[Chunk]) -> None:
        """Walks over input and stored chunks side by side for as long as they agree."""
        with contextlib.closing(connections.reader(self._writer.path)) as reader:
            orphans = reader.execute("SELECT 1 FROM rows WHERE id < 0 LIMIT 1").fetchone() is not None
            self._columns = dict.fromkeys(meta.columns(reader))
            after, last, rows_before = -1, -1, 0
            storing, stored, held = True, None, None
            for chunk, has_grown in _grown(chunks):
                if self.progress.is_stopping:
                    return
                if not has_grown:
                    rows_before = self._rows_seen
                    stored = chunktable.next_chunk(reader, after) if storing else None
                    storing = stored is not None
                held = None
                started = time.monotonic()
                if stored is None and not orphans:
                    self._append(chunk)
                elif stored is not None and _may_become(stored, chunk):
                    held = chunk
                    continue
                elif stored is None or not self._agrees(stored, chunk, reader):
                    self._match(stored, chunk, chunks)
                    return
                after, last = chunk.indices[0], chunk.indices[-1]
                self._rows_seen = rows_before + len(chunk)
                self.progress.rest(time.monotonic() - started)
            left = chunktable.next_chunk(reader, after) if storing else None
            if left is not None:
                self._match(left, held, chunks)
                return
        self._writer.do(self._end_input)
        self.progress.complete(self._rows_seen, last)

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
            self.progress.chunk_ready(stored.last)
        else:
            self._append(chunk)
        return True

    def _append(self, chunk: Chunk) -> None:
        """Stores a chunk in place of what stands under its id; it may be fed once it is committed."""
        stored = chunktable.store_chunk(chunk, row_keys(chunk, self._rules.key_names), self._key_names, self._packer)
        columns = self._new_columns(chunk)
        first = not self._appending
        self._appending = True
        self._wait_for_slot()

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", stored)
            self._writer.outdate_output(connection)
            if first:
                meta.put(connection, "complete", "0")
            if columns is not None:
                meta.put_columns(connection, columns)

        future = self._writer.submit(insert)
        last = chunk.indices[-1]
        future.add_done_callback(lambda done: self._appended(last, done.exception()))
        if self.progress.is_feed_waiting:
            self._writer.hurry()

    def _appended(self, last: int, error: BaseException | None) -> None:
        self._slots.release()
        if error is None:
            self.progress.chunk_ready(last)
            return
        self.progress.fail(error if isinstance(error, RowmillError) else RowmillError(str(error)))

    def _new_columns(self, chunk: Chunk) -> list[str] | None:
        before = len(self._columns)
        self._columns.update(dict.fromkeys(chunk.columns))
        if len(self._columns) == before:
            return None
        self._rules.check_columns(list(self._columns))
        return list(self._columns)

    def _match(self, stored: StoredChunk | None, chunk: Chunk | None, rest: Iterator[Chunk]) -> None:
        """From here on the input differs: reads it to its end, beside what is stored, and matches by key before
        anything more is sent.  What is answered meanwhile is committed as ever.
        """
        starts = [] if stored is None else [stored.id]
        starts += [] if chunk is None else [chunk.indices[0]]
        first = min(starts)
        last = self._read_beside(chunk, rest, stored.key_names if stored else self._key_names)
        if last is None:
            return

        def task(connection: sqlite3.Connection) -> tuple[Matched, Mapping[str, int]]:
            before = count_rows(connection).by_status
            matched = match(connection, first)
            self._writer.outdate_output(connection)
            meta.put_columns(connection, list(self._columns))
            self._end_input(connection)
            after = count_rows(connection).by_status
            changed = {s: after.get(s, 0) - before.get(s, 0) for s in {*before, *after}}
            return matched, {s: n for s, n in changed.items() if n}

        matched, changed = self._writer.do(task)
        self._rules.moved(matched, changed)
        self.progress.complete(self._rows_seen + matched.rows, max(last, first))

    def _read_beside(self, chunk: Chunk | None, rest: Iterator[Chunk], match_names: str) -> int | None:
        """Stores the rest of the input in next_chunks; the last row's index (-1: none), None where it is to stop.

        `match_names` says what the keys of the rows that are stored are made of.
        """
        self._writer.do(lambda c: c.execute("DELETE FROM next_chunks"))
        names = chunktable.key_names_of(match_names)
        last = -1
        for one in _chained(chunk, rest):
            if self.progress.is_stopping:
                return None
            keys = row_keys(one, self._rules.key_names)
            self._new_columns(one)
            last = one.indices[-1]
            row = chunktable.store_chunk(one, keys, self._key_names, self._packer)
            match_keys = None if match_names == self._key_names else row_keys(one, names)
            self._submit(INSERT_NEXT, (*row, match_keys))
        return last

    def _submit(self, statement: str, row: tuple[object, ...]) -> None:
        """Has a row inserted, a few of them ahead of the writer; an error comes out of the next task."""
        self._wait_for_slot()
        future = self._writer.submit(lambda connection: connection.execute(statement, row))
        future.add_done_callback(lambda done: self._slots.release())

    def _wait_for_slot(self) -> None:
        if not self._slots.acquire(blocking=False):
            self._writer.hurry()
            self._slots.acquire()

    def _end_input(self, connection: sqlite3.Connection) -> None:
        """The input has been read to its end, which is not that of the whole where it is a sample."""
        meta.put(connection, "complete", "0" if self._rules.is_sample else "1")


def _grown(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, bool]]:
    """Chunks, those that come in pieces once for each piece with the ones before it, and whether it has grown so."""
    begun: ObjectChunk | None = None
    for chunk in chunks:
        if not len(chunk):
            continue
        piece = chunk if isinstance(chunk, ObjectChunk) else None
        whole, has_grown = chunk, begun is not None
        if begun is not None:
            assert piece is not None
            whole = piece = begun.joined(piece)
        begun = piece if piece is not None and piece.is_open else None
        yield whole, has_grown


def _may_become(stored: StoredChunk, chunk: Chunk) -> bool:
    """Whether a chunk of which not all has come yet may turn out to be the stored one."""
    if not (isinstance(chunk, ObjectChunk) and chunk.is_open and len(chunk) < stored.row_count):
        return False
    keys = row_keys(chunk, chunktable.key_names_of(stored.key_names))
    return stored.keys.startswith(keys) and list(stored.indices()[: len(chunk)]) == list(chunk.indices)


def _chained(first: Chunk | None, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    if first is not None:
        yield first
    for chunk in rest:
        if len(chunk):
            yield chunk
