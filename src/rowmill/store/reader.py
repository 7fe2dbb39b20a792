"""Reads a run file: counts, outcomes in row order, single rows with their attempts, the last session.

Every query is short, so that a run that writes meanwhile is not held up.  It must not change anything.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Self

import zstandard

from rowmill.core.measures.frequent_errors import frequent_errors
from rowmill.errors import RunFileError
from rowmill.ports import Chunk
from rowmill.records import GOOD, LastAttempt, Outcome, RawReply, Status
from rowmill.store import chunktable, meta
from rowmill.store import connection as connections
from rowmill.store.packing import DamagedError, Unpacker
from rowmill.store.totals import Session, Totals, count_rows, read_sessions, total_of

NOBODY = (None, None)  # endpoint and model of a row that none answered
STATUSES: Mapping[str, Status] = {status.value: status for status in Status}

OUTCOMES = """
SELECT r.id, coalesce(d.status, r.status), coalesce(d.answer, r.answer), coalesce(d.lane, r.lane),
       coalesce(d.error, r.error), r.attempts, r.latency_s, r.input_tokens, r.output_tokens, r.cost_usd,
       coalesce(d.reasoning, r.reasoning), r.duplicate_of
FROM rows AS r LEFT JOIN rows AS d ON d.id = r.duplicate_of
WHERE r.id BETWEEN ? AND ? AND r.requeued = 0 AND (r.duplicate_of IS NULL OR d.requeued = 0)
"""
VERSIONS = """
SELECT v.id, v.fingerprint, v.model, v.definition, v.accepted,
       (SELECT count(*) FROM rows AS r WHERE r.version = v.id AND r.id >= 0 AND r.requeued = 0 AND r.attempts > 0)
FROM versions AS v ORDER BY v.id
"""
FINISHED = "SELECT id FROM rows WHERE id BETWEEN ? AND ? AND requeued = 0"
# Where errors differ from row to row these many stand for all.
ERRORS = """
SELECT error, count(*) FROM rows
WHERE id >= 0 AND requeued = 0 AND error IS NOT NULL AND status NOT IN ('duplicate', {})
GROUP BY error ORDER BY 2 DESC LIMIT 100000
"""
SECONDS = """
SELECT id >> 16, sum(latency_s) FROM attempts WHERE id >= 0 AND latency_s IS NOT NULL GROUP BY id >> 16
"""
ATTEMPTS = """
SELECT a.id & 65535, l.endpoint, a.sent_at, a.latency_s, a.kind, a.status_code, a.packed, a.body, a.error,
       a.request_id, a.input_tokens, a.output_tokens, a.cost_usd
FROM attempts AS a LEFT JOIN lanes AS l ON l.id = a.lane
WHERE a.id > ? AND a.id < ? ORDER BY a.id
"""
REPLIES = """
SELECT a.id >> 16, l.endpoint, a.latency_s, a.packed, a.body
FROM attempts AS a LEFT JOIN lanes AS l ON l.id = a.lane
WHERE a.id > ? AND a.id < ? AND a.body IS NOT NULL AND a.status_code < 300 ORDER BY a.id
"""
LAST_ATTEMPTS = """
SELECT id >> 16, kind, status_code, request_id, packed, body FROM attempts WHERE id > ? AND id < ? ORDER BY id
"""


class Version(NamedTuple):
    """What was sent besides the rows, by one model, and how many finished rows were answered under it."""

    id: int
    fingerprint: str
    model: str
    definition: Mapping[str, Any]
    accepted: bool
    rows: int


class RunFileReader:
    """A run file opened for reading, for as long as the context lasts."""

    def __init__(self, path: Path, *, checked: bool = True) -> None:
        if checked:
            connections.check(path)
        elif not path.exists():
            raise RunFileError(f"there is no run file {path}")
        self.path = path
        self._connection = connections.reader(path)
        with connections.translated(path):
            self._unpacker = Unpacker(lambda: meta.dictionary(self._connection))
        self.lost_chunks = 0
        self._lanes: dict[int | None, tuple[str | None, str | None]] = {None: NOBODY}
        self._totals: tuple[int, Totals] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _all(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with connections.translated(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """While it lasts, all that is read is the run file as it stood at the first look, whatever a run writes."""
        begins = not self._connection.in_transaction
        if begins:
            with connections.translated(self.path):
                self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if begins:
                self._connection.rollback()

    def metadata(self, name: str) -> str | None:
        """An entry of the table meta, None where there is none."""
        with connections.translated(self.path):
            return meta.get(self._connection, name)

    def is_complete(self) -> bool:
        """Whether the input has been read to its end, and not only a pilot's sample of it."""
        return self.metadata("complete") == "1" and not self.holds_sample()

    def holds_sample(self) -> bool:
        """Whether the input stored so far is a pilot's sample."""
        return self.metadata("sampled") == "1"

    def columns(self) -> list[str]:
        """The input's columns."""
        with connections.translated(self.path):
            return meta.columns(self._connection)

    def row_total(self) -> int:
        """Rows of input stored so far."""
        ((total,),) = self._all("SELECT coalesce(sum(row_count), 0) FROM chunks")
        return int(total)

    def totals(self) -> Totals:
        """Counts by status and sums."""
        with connections.translated(self.path):
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if self._totals is not None and self._totals[0] == version:
                return self._totals[1]  # nothing was committed since
            totals = total_of(count_rows(self._connection), read_sessions(self._connection))
        self._totals = version, totals
        return totals

    def errors(self) -> Sequence[tuple[str, int]]:
        """The most frequent errors of rows that ended badly; rows are looked through only where some did."""
        if GOOD.issuperset(self.totals().counts):
            return ()
        marks = ", ".join("?" * len(GOOD))
        return frequent_errors(self._all(ERRORS.format(marks), tuple(GOOD)))

    def has_skipped_for_cause(self) -> bool:
        """Whether rows were skipped for another reason than that they are empty."""
        return bool(self._all("SELECT 1 FROM rows WHERE id >= 0 AND status = 'skipped' AND error IS NOT NULL LIMIT 1"))

    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        with connections.translated(self.path):
            return read_sessions(self._connection)

    def versions(self) -> list[Version]:
        """All versions of the job that this file knows, with the finished rows answered under each."""
        return [
            Version(number, fingerprint, model, json.loads(definition), bool(accepted), rows)
            for number, fingerprint, model, definition, accepted, rows in self._all(VERSIONS)
        ]

    def chunks(self) -> Iterator[Chunk]:
        """The stored input, in order."""
        for stored in self._stored():
            yield chunktable.load_chunk(stored, self._unpacker.packer)

    def indices(self) -> Iterator[tuple[Sequence[int], Set[int]]]:
        """For each stored chunk the indices of its rows, and which of them are finished."""
        for stored in self._stored():
            finished = self._all(FINISHED, (stored.id, stored.last))
            yield stored.indices(), {index for (index,) in finished}

    def _stored(self) -> Iterator[chunktable.StoredChunk]:
        after = -1
        while True:
            with connections.translated(self.path):
                stored = chunktable.next_chunk(self._connection, after)
            if stored is None:
                return
            after = stored.id
            yield stored

    def outcomes(self, *, salvage: bool = False) -> Iterator[tuple[Chunk, list[Outcome | None]]]:
        """Chunks with the outcomes of their rows, None for pending ones, all as they stood at the first look.

        `salvage` passes over damaged parts.
        """
        with self.frozen():
            yield from self._outcomes_of_chunks(salvage=salvage)

    def _outcomes_of_chunks(self, *, salvage: bool) -> Iterator[tuple[Chunk, list[Outcome | None]]]:
        after = -1
        while True:
            before = after
            try:
                with connections.translated(self.path):
                    stored = chunktable.next_chunk(self._connection, after)
                    if stored is None:
                        return
                    after = stored.id
                    found = self._connection.execute(OUTCOMES, (stored.id, stored.last)).fetchall()
                chunk = chunktable.load_chunk(stored, self._unpacker.packer)
                by_index = self._outcomes(found)
            except RunFileError:
                self.lost_chunks += 1
                if not salvage:
                    raise
                damaged = after if after != before else self._id_after(before)
                if damaged is None:
                    return
                after = damaged
                continue
            yield chunk, [by_index.get(index) for index in chunk.indices]

    def _outcomes(self, found: Sequence[tuple[Any, ...]]) -> dict[int, Outcome]:
        lanes = self._lanes
        try:
            answers = self._unpacker.answers([row[2] for row in found])
        except DamagedError as error:
            index = found[error.position][0]
            raise RunFileError(f"the answer of row {index} of the run file is damaged ({error})") from None
        outcomes: dict[int, Outcome] = {}
        for row, answer in zip(found, answers, strict=True):
            # Field by field: a row of a starred list and a starred call takes twice the time.
            index, status, _, lane, said, attempts, latency_s, tokens_in, tokens_out, cost_usd, reasoning, leader = row
            endpoint, model = lanes.get(lane) or self._lane(lane)
            outcomes[index] = Outcome(
                index,
                STATUSES[status],
                answer,
                said,
                endpoint,
                model,
                attempts,
                latency_s,
                tokens_in,
                tokens_out,
                cost_usd,
                reasoning,
                leader,
            )
        return outcomes

    def _lane(self, lane: int) -> tuple[str | None, str | None]:
        """Endpoint and model of a lane that came after those known."""
        for number, endpoint, model in self._connection.execute("SELECT id, endpoint, model FROM lanes"):
            self._lanes[number] = (endpoint, model)
        return self._lanes.setdefault(lane, NOBODY)

    def _id_after(self, after: int) -> int | None:
        """The id before the next readable chunk, found without reading the damaged one."""
        try:
            row = self._connection.execute(
                "SELECT id FROM chunks WHERE id > ? ORDER BY id LIMIT 1", (after,)
            ).fetchone()
        except sqlite3.DatabaseError:
            return None
        return None if row is None else int(row[0])

    def rows(self, statuses: Sequence[str], limit: int | None) -> Iterator[dict[str, Any]]:
        """Rows with input, raw reply, answer and every attempt, for people to look at."""
        left = limit if limit is not None else -1
        wanted = set(statuses)
        for chunk, outcomes in self.outcomes():
            offsets = [at for at, outcome in enumerate(outcomes) if _is_wanted(outcome, wanted)]
            if left >= 0:
                offsets = offsets[:left]
                left -= len(offsets)
            if offsets:
                for at, record in zip(offsets, chunk.take(offsets).records(), strict=True):
                    yield self._shown(chunk.indices[at], record, outcomes[at])
            if left == 0:
                return

    def _shown(self, index: int, record: Mapping[str, Any], outcome: Outcome | None) -> dict[str, Any]:
        attempts = self.attempts(index)
        replies = [a["reply"] for a in attempts if a["reply"] is not None]
        return {
            "row": index,
            "status": "pending" if outcome is None else outcome.status.value,
            "error": None if outcome is None else outcome.error,
            "input": record,
            "reply": replies[-1] if replies else None,
            "answer": None if outcome is None or outcome.answer is None else json.loads(outcome.answer),
            "attempts": attempts,
        }

    def replies(self, first: int, last: int) -> dict[int, tuple[str, RawReply]]:
        """The last reply of each row from `first` to `last` that has one, with its endpoint's name."""
        found = self._all(REPLIES, (first << 16, (last + 1) << 16))
        return {
            index: (endpoint, RawReply(200, {}, self._unpacker.body(packed, body), latency_s or 0.0))
            for index, endpoint, latency_s, packed, body in found
        }

    def last_attempts(self, first: int, last: int) -> Iterator[tuple[int, LastAttempt]]:
        """The last attempt of each row from `first` to `last` that has one, in order, with one body held at a time."""
        with connections.translated(self.path):
            before: tuple[Any, ...] | None = None
            for row in self._connection.execute(LAST_ATTEMPTS, (first << 16, (last + 1) << 16)):
                if before is not None and before[0] != row[0]:
                    yield self._last_attempt(before)
                before = row
            if before is not None:
                yield self._last_attempt(before)

    def _last_attempt(self, row: tuple[Any, ...]) -> tuple[int, LastAttempt]:
        index, kind, status_code, request_id, packed, body = row
        try:
            unpacked = None if body is None else self._unpacker.body(packed, body)
        except zstandard.ZstdError as error:
            raise RunFileError(f"the reply to row {index} of the run file is damaged ({error})") from None
        return index, LastAttempt(kind, status_code, request_id, unpacked)

    def seconds(self) -> dict[int, float]:
        """Time in flight of each row over all its attempts; for run files that hold a sample."""
        return dict(self._all(SECONDS))

    def attempts(self, index: int) -> list[dict[str, Any]]:
        """Every request that was made for one row, oldest first."""
        rows = self._all(ATTEMPTS, (index << 16, (index + 1) << 16))
        return [
            {
                "number": number,
                "endpoint": endpoint,
                "sent_at": sent_at,
                "latency_s": latency_s,
                "kind": kind,
                "status_code": status_code,
                "error": error,
                "request_id": request_id,
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "cost_usd": cost_usd,
                "reply": None if body is None else self._unpacker.body(packed, body).decode("utf-8", "replace"),
            }
            for (
                number,
                endpoint,
                sent_at,
                latency_s,
                kind,
                status_code,
                packed,
                body,
                error,
                request_id,
                input_tokens,
                output_tokens,
                cost_usd,
            ) in rows
        ]


def _is_wanted(outcome: Outcome | None, wanted: set[str]) -> bool:
    if not wanted:
        return True
    return ("pending" if outcome is None else outcome.status.value) in wanted
