"""Asks a model about rows in memory: rows and frames in, the same kind with the answers out."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.api.frames import Frame, read_frame
from rowmill.api.options import make_job
from rowmill.api.running import raise_signal
from rowmill.errors import JobError, StoppedError, StopReason
from rowmill.records import Status
from rowmill.sources.arrow import ArrowSource, RowsSource

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.job import Job
    from rowmill.ports import Source
    from rowmill.records import Result

# What belongs to files, or would leave rows out of what is handed back.
NOT_OF_MAPS = frozenset(
    {"output", "format", "encoding", "delimiter", "sheet", "escape_formulas", "split_rows"}
    | {"limit", "sample", "seed", "where"}
)


@dataclass(slots=True)
class Asking:
    """One call of `map` with a prompt: what came in, and where its run file is while it lasts."""

    frame: Frame | None
    rows: Iterable[Any]
    run_file: Path
    is_temporary: bool
    seen: list[Any] = field(default_factory=list)

    def job(self, options: Mapping[str, Any]) -> Job:
        """The job; its output's name only tells the run file's."""
        refused = sorted(name for name in NOT_OF_MAPS if options.get(name) is not None)
        if refused:
            raise JobError(
                *(f"{name}: is for rowmill.run; map hands back every row that it is given" for name in refused)
            )
        output = str(self.run_file).removesuffix(".rowmill")
        return make_job("-", {**options, "output": output, "format": "jsonl", "run_file": str(self.run_file)})

    def source(self) -> Source:
        """The rows for the runner; plain ones are remembered as they pass."""
        if self.frame is not None:
            return ArrowSource(self.frame.table)
        if isinstance(self.rows, Sequence) and not isinstance(self.rows, str):
            self.seen = list(self.rows)
            return RowsSource(self.seen)
        return RowsSource(self._remembered())

    def _remembered(self) -> Iterator[Any]:
        for row in self.rows:
            self.seen.append(row)
            yield row

    def finish(self, ended: Result) -> Any:
        """What the caller gets.  Raises StoppedError where rows are left, KeyboardInterrupt after Ctrl-C."""
        raise_signal(ended.reason)
        if ended.reason is not StopReason.FINISHED:
            kept = str(self.run_file)
            text = f"{ended.message}; what was answered is kept: the same call with run_file={kept!r} goes on"
            raise StoppedError(text, ended.reason.value, kept)
        handed_back = self._widened()
        if self.is_temporary:
            shutil.rmtree(self.run_file.parent, ignore_errors=True)
        return handed_back

    def _widened(self) -> Any:
        if self.frame is not None:
            return self.frame.widened(_added_table(self.run_file))
        originals = ({"text": row} if isinstance(row, str) else row for row in self.seen)
        return [{**row, **added} for row, added in zip(originals, _added_dicts(self.run_file), strict=True)]

    def abandon(self, error: BaseException) -> None:
        """After an error: a temporary run file is taken away, or named where it holds replies."""
        if not self.is_temporary or isinstance(error, StoppedError):
            return
        if self._holds_replies():
            text = "what was answered is kept: the same call with run_file=%r goes on"
            logging.getLogger("rowmill").warning(text, str(self.run_file))
        else:
            shutil.rmtree(self.run_file.parent, ignore_errors=True)

    def _holds_replies(self) -> bool:
        from rowmill.store.reader import RunFileReader

        try:
            reader = RunFileReader(self.run_file, checked=False)
        except JobError:
            return False
        try:
            return bool(reader.totals().counts)
        finally:
            reader.close()


def begin(rows: Any, run_file: Any) -> Asking:
    """Looks at what came in and finds a place for the run file."""
    frame = read_frame(rows)
    if frame is None and (isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable)):
        raise JobError(f"rows: must be a frame, or an iterable of mappings or texts, not {type(rows).__name__}")
    if run_file is not None:
        return Asking(frame, rows, Path(run_file), is_temporary=False)
    return Asking(frame, rows, Path(tempfile.mkdtemp(prefix="rowmill-")) / "map.rowmill", is_temporary=True)


def _added_table(run_file: Path) -> pa.Table:
    import pyarrow as pa

    from rowmill.outputs import arrow_schema
    from rowmill.runner.results import finished_rows

    with finished_rows(run_file, with_input=False) as found:
        schema = arrow_schema((), found.columns)
        return pa.Table.from_batches([batch.arrow(schema) for batch in found.batches()], schema)


def _added_dicts(run_file: Path) -> Iterator[dict[str, Any]]:
    from rowmill.runner.results import finished_rows

    with finished_rows(run_file, with_input=False) as found:
        names = found.columns.names
        for batch in found.batches():
            for values in batch.rows():
                plain = (value.value if isinstance(value, Status) else value for value in values)
                yield dict(zip(names, plain, strict=True))
