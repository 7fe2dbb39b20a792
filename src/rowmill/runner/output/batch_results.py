"""From the run file of a batch file to its results: the Batch API's output and error files, or vLLM's one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rowmill.core.measures.gc_threshold import rare_collections
from rowmill.core.requests.batch_lines import ID
from rowmill.core.rows.outputs.batch_result_lines import (
    RUN_BATCH,
    Line,
    answered_line,
    error_line,
    is_answered,
    run_batch_error_line,
)
from rowmill.errors import RunFileError
from rowmill.io.sinks import remove
from rowmill.io.sinks.jsonl import JsonLinesFile
from rowmill.ports import Chunk
from rowmill.records import LastAttempt, Outcome
from rowmill.store.reader import RunFileReader

LEADERS_KEPT = 100


class Written(NamedTuple):
    """How many rows the results hold, and where the errors are, None where there are none."""

    rows: int
    failures: str | None


@rare_collections()
def write_results(reader: RunFileReader, target: str, failures: str, form: str, *, salvage: bool = False) -> Written:
    """Streams every finished row, in input order, into `target` or the file of errors beside it.

    In the form of vLLM's `run-batch` the errors stand in both.  Replies are held one at a time.
    """
    results = _Results(target, failures, has_errors=form == RUN_BATCH)
    try:
        for chunk, outcomes in reader.outcomes(salvage=salvage):
            try:
                for row in _ended(reader, chunk, outcomes):
                    results.add(row)
            except RunFileError:
                reader.lost_chunks += 1
                if not salvage:
                    raise
        return results.commit()
    except BaseException:
        results.abort()
        raise


class _Ended(NamedTuple):
    custom_id: Any
    outcome: Outcome
    last: LastAttempt | None
    is_row: bool


def _ended(reader: RunFileReader, chunk: Chunk, outcomes: Sequence[Outcome | None]) -> Iterator[_Ended]:
    """The finished rows of a chunk, each with the attempt that it ended with; a duplicate with its leader's."""
    attempts = reader.last_attempts(chunk.indices[0], chunk.indices[-1])
    leaders = _Leaders(reader)
    index, last = next(attempts, (-1, None))
    for at, (values, outcome) in enumerate(zip(chunk.values((ID,)), outcomes, strict=True)):
        if outcome is None:
            continue
        while last is not None and index < outcome.index:
            index, last = next(attempts, (-1, None))
        own = last if index == outcome.index else None
        if outcome.duplicate_of is not None:
            own = leaders.attempt(outcome.duplicate_of)
        yield _Ended(values.get(ID), outcome, own, at not in chunk.faults)


class _Leaders:
    """The last attempts of the rows that duplicates follow; the latest asked for are kept."""

    def __init__(self, reader: RunFileReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[int, LastAttempt | None] = OrderedDict()

    def attempt(self, index: int) -> LastAttempt | None:
        if index not in self._kept:
            self._kept[index] = dict(self._reader.last_attempts(index, index)).get(index)
            if len(self._kept) > LEADERS_KEPT:
                self._kept.popitem(last=False)
        return self._kept[index]


class _Results:
    """The two files; that of errors is made with the first error."""

    def __init__(self, target: str, failures: str, *, has_errors: bool) -> None:
        self._has_errors = has_errors
        self._failures = failures
        self._answered = JsonLinesFile(target)
        self._failed: JsonLinesFile | None = None
        self._rows = 0

    def add(self, row: _Ended) -> None:
        self._rows += 1
        custom_id, outcome, last, is_row = row
        if last is not None and is_answered(outcome, last):
            self._answered.append([answered_line(custom_id, outcome, last)])
            return
        self._add_error(error_line(custom_id, outcome, last, is_row=is_row))
        if self._has_errors:
            self._answered.append([run_batch_error_line(custom_id, outcome, last, is_row=is_row)])

    def _add_error(self, line: Line) -> None:
        if self._failed is None:
            self._failed = JsonLinesFile(self._failures)
        self._failed.append([line])

    def commit(self) -> Written:
        """Makes both appear; an old file of errors goes where there are none."""
        if self._failed is None:
            remove(self._failures)
        else:
            self._failed.commit()
        self._answered.commit()
        return Written(self._rows, None if self._failed is None else self._failures)

    def abort(self) -> None:
        """Takes what is unfinished away."""
        self._answered.abort()
        if self._failed is not None:
            self._failed.abort()
