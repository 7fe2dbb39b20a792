"""Reads finished rows out of a run file as output rows, a chunk at a time; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rowmill.core.rows.outputs import Batch, OutputColumns
from rowmill.ports import Chunk
from rowmill.runner.output.exporting import stored_job
from rowmill.runner.setup.plan import columns_of
from rowmill.store.reader import RunFileReader


class FinishedRows:
    """The rows of a run file that have ended, in input order.  `columns` are the output's.

    With `with_input` false the columns are those that the run adds.
    """

    def __init__(self, reader: RunFileReader, *, with_input: bool = True) -> None:
        self._reader = reader
        job = stored_job(reader)
        totals = reader.totals()
        self.columns: OutputColumns = columns_of(
            job,
            job.answer.compiled if job.answer else None,
            reader.columns() if with_input else (),
            reasoning=totals.reasoning,
            duplicates=totals.duplicates,
        )

    def batches(self) -> Iterator[Batch]:
        """About 1,000 rows at a time; a batch may be empty."""
        for chunk, outcomes in self._reader.outcomes():
            yield Batch(chunk, outcomes, self.columns)

    def chunks(self) -> Iterator[Chunk]:
        """The input, from which the output's types are told."""
        return self._reader.chunks()


@contextmanager
def finished_rows(run_file: str | Path, *, with_input: bool = True) -> Iterator[FinishedRows]:
    """The finished rows of a run file that stays open while the context lasts.  Raises RunFileError."""
    with RunFileReader(Path(run_file), checked=False) as reader:
        yield FinishedRows(reader, with_input=with_input)
