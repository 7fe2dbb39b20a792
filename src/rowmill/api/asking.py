"""Asks a model about rows in memory: rows and frames in, the same kind with the answers out."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.api.frames import Frame, read_frame
from rowmill.api.options import MapOptions, chosen_on_error, make_job
from rowmill.api.running import observers, raise_signal, rules_of
from rowmill.errors import JobError, RowError, StoppedError, StopReason
from rowmill.io.sources.arrow import ArrowSource, RowsSource
from rowmill.records import GOOD, Status
from rowmill.runner.maps.prompt_map import MapRun, prepared_map
from rowmill.runner.session.loop import in_thread
from rowmill.store.reader import RunFileReader

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.job import Job
    from rowmill.ports import Source
    from rowmill.records import Result

# What belongs to files, or would leave rows out of what is handed back.
NOT_OF_MAPS = frozenset(
    {"output", "format", "encoding", "delimiter", "sheet", "escape_formulas", "split_rows"}
    | {"limit", "sample", "seed", "where", "pilot", "approve", "fresh"}
)


class AskedRows:
    """One call of `map` with a prompt: what came in, and where its run file is while it lasts."""

    def __init__(self, frame: Frame | None, rows: Iterable[Any], options: Mapping[str, Any]) -> None:
        """Raises JobError for what does not fit."""
        self._frame = frame
        self._rows = rows
        self._seen: list[Any] = []
        self._on_error = chosen_on_error(options)
        if frame is not None and self._on_error == "return":
            raise JobError("on_error: a frame cannot hold exceptions; leave it out, and `_status` and `_error` tell")
        self._rules, self._observers = rules_of(options), observers(options)
        named = options.get("run_file")
        self._is_temporary = named is None
        self._run_file = Path(tempfile.mkdtemp(prefix="rowmill-")) / "map.rowmill" if named is None else Path(named)
        try:
            self._job = self._job_of(options)
        except BaseException:
            self._take_away()
            raise

    def run(self) -> Any:
        """Blocks until every row has ended; what the caller gets."""
        with self._kept():
            return self._finish(self._map().run())

    async def arun(self) -> Any:
        """The same on the running loop."""
        with self._kept():
            return await in_thread(self._finish, await self._map().arun())

    def _map(self) -> MapRun:
        return MapRun(lambda: prepared_map(self._job, self._source()), self._rules, self._observers)

    def _job_of(self, options: Mapping[str, Any]) -> Job:
        """The job; its output's name only tells the run file's."""
        refused = sorted(name for name in NOT_OF_MAPS if options.get(name) is not None)
        if refused:
            raise JobError(
                *(f"{name}: is for rowmill.run; map hands back every row that it is given" for name in refused)
            )
        output = str(self._run_file).removesuffix(".rowmill")
        own = {"output": output, "format": "jsonl", "run_file": str(self._run_file)}
        return make_job("-", {**options, **own}, {*MapOptions.__annotations__, *own})

    def _source(self) -> Source:
        """The rows for the runner; plain ones are remembered as they pass."""
        if self._frame is not None:
            return ArrowSource(self._frame.table)
        if isinstance(self._rows, Sequence) and not isinstance(self._rows, str):
            self._seen = list(self._rows)
            return RowsSource(self._seen)
        return RowsSource(self._remembered())

    def _remembered(self) -> Iterator[Any]:
        for row in self._rows:
            self._seen.append(row)
            yield row

    def _finish(self, ended: Result) -> Any:
        """What the caller gets.  Raises StoppedError where rows are left, KeyboardInterrupt after Ctrl-C."""
        raise_signal(ended.reason)
        if ended.reason is not StopReason.FINISHED:
            kept = str(self._run_file)
            text = f"{ended.message}; what was answered is kept: the same call with run_file={kept!r} goes on"
            raise StoppedError(text, ended.reason.value, kept)
        handed_back = self._widened()
        self._take_away()
        return handed_back

    def _widened(self) -> Any:
        if self._on_error == "raise":
            for error in _row_errors(self._run_file):
                raise error
        if self._frame is not None:
            return self._frame.widened(_added_table(self._run_file))
        originals = ({"text": row} if isinstance(row, str) else row for row in self._seen)
        found: list[Any] = [
            {**row, **added} for row, added in zip(originals, _added_dicts(self._run_file), strict=True)
        ]
        if self._on_error == "return":
            for error in _row_errors(self._run_file):
                found[error.row] = error
        return found

    def _take_away(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self._run_file.parent, ignore_errors=True)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """After an error a temporary run file is taken away, or named where it holds replies."""
        try:
            yield
        except StoppedError:  # which names it
            raise
        except BaseException as error:
            if self._is_temporary and self._holds_replies():
                note = f"what was answered is kept: the same call with run_file={str(self._run_file)!r} goes on"
                error.add_note(note)
                logging.getLogger("rowmill").warning(note)
            else:
                self._take_away()
            raise

    def _holds_replies(self) -> bool:
        try:
            reader = RunFileReader(self._run_file, checked=False)
        except JobError:
            return False
        with reader:
            return bool(reader.totals().counts)


def asked_rows(rows: Any, options: Mapping[str, Any]) -> AskedRows:
    """Looks at what came in.  Raises JobError for what holds no rows."""
    frame = read_frame(rows)
    if frame is None and (isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable)):
        raise JobError(f"rows: must be a frame, or an iterable of mappings or texts, not {type(rows).__name__}")
    return AskedRows(frame, rows, options)


def _row_errors(run_file: Path) -> Iterator[RowError]:
    """An exception for each row that ended badly, in order."""
    with RunFileReader(run_file, checked=False) as reader:
        for _, outcomes in reader.outcomes():
            for outcome in outcomes:
                if outcome is not None and outcome.status not in GOOD:
                    yield RowError(outcome.error or outcome.status.value, outcome.index, outcome.status.value)


def _added_table(run_file: Path) -> pa.Table:
    import pyarrow as pa

    from rowmill.core.rows.outputs import arrow_batch, arrow_schema
    from rowmill.runner.output.finished_rows import finished_rows

    with finished_rows(run_file, with_input=False) as found:
        schema = arrow_schema((), found.columns)
        return pa.Table.from_batches([arrow_batch(batch, schema) for batch in found.batches()], schema)


def _added_dicts(run_file: Path) -> Iterator[dict[str, Any]]:
    from rowmill.runner.output.finished_rows import finished_rows

    with finished_rows(run_file, with_input=False) as found:
        names = found.columns.names
        for batch in found.batches():
            for values in batch.rows():
                plain = (value.value if isinstance(value, Status) else value for value in values)
                yield dict(zip(names, plain, strict=True))
