"""`rowmill.Result`: how a run ended, and its rows, streamed from the run file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.errors import JobError
from rowmill.records import Status

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.records import Figures
    from rowmill.records import Result as Ended
    from rowmill.runner.output.finished_rows import FinishedRows


class Result:
    """How a run ended.  Its rows stay on disk: `rows`, `to_arrow` and Arrow's stream protocol read the run file."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows by status, over all sessions."""
        return {str(status): number for status, number in self._ended.figures.counts.items()}

    @property
    def cost_usd(self) -> float | None:
        """What all sessions cost in USD, None when it is unknown."""
        return self._ended.figures.cost_usd

    @property
    def exit_code(self) -> int:
        """What the command line would exit with: 0 all well, 3 some rows not, 4 stopped early."""
        return self._ended.exit_code

    @property
    def message(self) -> str:
        """What stopped the run and what to do; empty when it finished."""
        return self._ended.message

    @property
    def figures(self) -> Figures:
        """Rates, tokens, latencies and lanes at the end."""
        return self._ended.figures

    @property
    def output(self) -> str | None:
        """The output's path, None while rows are pending."""
        return self._ended.output

    @property
    def failures(self) -> str | None:
        """The path of the rows that ended badly, None where there are none."""
        return self._ended.failures

    @property
    def run_file(self) -> str:
        """The run file's path."""
        return self._ended.run_file

    def rows(self, status: str | Sequence[str] | None = None, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Finished rows in input order, as the output has them; those with one of these statuses where any is named.

        Raises JobError for a status that there is not.
        """
        return self._rows(frozenset(Status) if status is None else named_statuses(status), limit)

    def _rows(self, wanted: frozenset[str], limit: int | None) -> Iterator[dict[str, Any]]:
        from rowmill.runner.output.finished_rows import finished_rows

        left = -1 if limit is None else limit
        with finished_rows(self.run_file) as found:
            for batch in found.batches():
                for outcome, record in zip(batch.finished, batch.records(), strict=True):
                    if left == 0:
                        return
                    if outcome.status in wanted:
                        record[f"{found.columns.meta_prefix}status"] = outcome.status.value
                        left -= 1
                        yield record

    def to_arrow(self) -> pa.Table:
        """Finished rows as an Arrow table, with the types that a Parquet output has."""
        import pyarrow as pa

        from rowmill.core.rows.outputs import arrow_batch
        from rowmill.runner.output.finished_rows import finished_rows

        with finished_rows(self.run_file) as found:
            schema = _schema(found)
            return pa.Table.from_batches([arrow_batch(batch, schema) for batch in found.batches()], schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The same as a stream, for whatever reads Arrow: `polars.DataFrame(result)`, `pyarrow.table(result)`."""
        import pyarrow as pa

        from rowmill.core.rows.outputs import arrow_batch
        from rowmill.runner.output.finished_rows import finished_rows

        with finished_rows(self.run_file) as found:
            schema = _schema(found)

        def batches() -> Iterator[pa.RecordBatch]:
            with finished_rows(self.run_file) as again:
                for batch in again.batches():
                    yield arrow_batch(batch, schema)

        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        counts = ", ".join(f"{number:,} {status}" for status, number in self.counts.items()) or "no rows"
        ended = f"; {self.message}" if self.message else ""
        return f"<rowmill.Result: {counts}; {self.output or self.run_file}{ended}>"


def _schema(found: FinishedRows) -> pa.Schema:
    from rowmill.core.rows.outputs import arrow_schema

    return arrow_schema(found.chunks(), found.columns)


def named_statuses(status: str | Sequence[str], what: str = "status") -> frozenset[str]:
    """The statuses that one name or several stand for; raises JobError for one that there is not."""
    wanted = frozenset([status] if isinstance(status, str) else status)
    strange = sorted(wanted.difference(Status))
    if strange:
        raise JobError(f"{what}: there is no {', '.join(strange)}; there are {', '.join(Status)}")
    return wanted
