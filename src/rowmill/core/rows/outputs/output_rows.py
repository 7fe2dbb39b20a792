"""Owns output rows: a chunk of input joined with its outcomes; must not know files or formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowmill.core.rows.chunks import TableChunk, decode_json
from rowmill.core.rows.outputs.columns import OutputColumns
from rowmill.ports import Chunk
from rowmill.records import Outcome

FAILURE_KEY = "_rowmill"


@dataclass(frozen=True, slots=True)
class Batch:
    """Finished rows of one chunk, in input order.

    `outcomes` stand in the chunk's order; where one is None the row is pending and left out.
    """

    chunk: Chunk
    outcomes: Sequence[Outcome | None]
    columns: OutputColumns

    def __post_init__(self) -> None:
        if None in self.outcomes:
            offsets = [offset for offset, outcome in enumerate(self.outcomes) if outcome is not None]
            object.__setattr__(self, "chunk", self.chunk.take(offsets))
            object.__setattr__(self, "outcomes", [self.outcomes[offset] for offset in offsets])

    def __len__(self) -> int:
        return len(self.outcomes)

    def sliced(self, start: int, end: int) -> Batch:
        """The rows from `start` up to `end`, or to the last."""
        if start == 0 and end >= len(self):
            return self
        offsets = range(start, min(end, len(self)))
        return Batch(self.chunk.take(offsets), self.outcomes[start:end], self.columns)

    @property
    def finished(self) -> Sequence[Outcome]:
        """The outcomes, one a row of `chunk`."""
        return self.outcomes  # type: ignore[return-value]  # no None is left in it

    def answers(self) -> Iterator[Mapping[str, Any]]:
        """Each row's answer by its field names; {} where there is none."""
        return (decode_json(outcome.answer) if outcome.answer else {} for outcome in self.finished)

    def records(self) -> Iterator[dict[str, Any]]:
        """One dict a row in column order; input columns that a row lacks are lacking."""
        answer_names = [(column.name, self.columns.answer_prefix + column.name) for column in self.columns.answer]
        meta_names, meta_of = self.columns.meta_names, self.columns.meta_of()
        rows = zip(self.chunk.records(), self.answers(), self.finished, strict=True)
        set_aside = self.columns.set_aside
        for record, answer, outcome in rows:
            for name in set_aside:
                record.pop(name, None)
            for name, final_name in answer_names:
                record[final_name] = answer.get(name)
            record.update(zip(meta_names, meta_of(outcome), strict=True))
            yield record

    def rows(self) -> Iterator[list[Any]]:
        """One list a row with the values of all columns in order; None where a row lacks an input column."""
        answer_names = [column.name for column in self.columns.answer]
        meta_of = self.columns.meta_of()
        rows = zip(self._input_rows(), self.answers(), self.finished, strict=True)
        for values, answer, outcome in rows:
            yield [*values, *map(answer.get, answer_names), *meta_of(outcome)]

    @property
    def is_regular(self) -> bool:
        """Whether it is plain to see that every row has every input column."""
        chunk = self.chunk
        return isinstance(chunk, TableChunk) and tuple(chunk.columns) == self.columns.input and not chunk.faults

    def _input_rows(self) -> Iterator[Sequence[Any]]:
        names = self.columns.input
        chunk = self.chunk
        if isinstance(chunk, TableChunk) and self.is_regular:
            return iter(chunk.rows)
        return ([record.get(name) for name in names] for record in chunk.records())


def failure_record(record: Mapping[str, Any], outcome: Outcome, raw: str | None) -> dict[str, Any]:
    """A line of OUTPUT.failed.jsonl: the input columns and a key `_rowmill`; `raw` excerpts the reply."""
    return {
        **record,
        FAILURE_KEY: {
            "row": outcome.index,
            "status": outcome.status.value,
            "error": outcome.error,
            "raw": raw,
        },
    }
