"""Where an output goes: a file, or a table of a database; how the run knows again what it wrote there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from rowmill.core.names.databases import Target, WriteReceipt
from rowmill.core.names.files import is_remote
from rowmill.core.rows.outputs import OutputColumns
from rowmill.io.files import exists, stamp
from rowmill.io.sinks import OutputShape, check_target, create_sink, create_table_sink, table_rows
from rowmill.job import Job
from rowmill.ports import Chunk, Sink
from rowmill.store import changes
from rowmill.store.connection import is_there
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer

Chunks = Callable[[], Iterable[Chunk]]


class Destination(Protocol):
    """Opens the sink of one output."""

    def open(self, columns: OutputColumns, chunks: Chunks, rows: int) -> Sink:
        """A sink for these columns and that many rows; raises OutputError."""


@dataclass(frozen=True, slots=True)
class FileDestination:
    """A file in one of the formats of `sinks`."""

    path: str
    format: str
    escape_formulas: bool = False
    split_rows: int | None = None

    def open(self, columns: OutputColumns, chunks: Chunks, rows: int) -> Sink:
        """A sink that has opened its temporary file, or the folder that holds its parts."""
        shape = OutputShape(self.format, self.escape_formulas, self.split_rows, rows)
        return create_sink(self.path, shape, columns, chunks)


@dataclass(frozen=True, slots=True)
class TableDestination:
    """A table; with a run file, which remembers what was written, it is never written twice by accident."""

    target: Target
    run_file: Path | None = None

    def open(self, columns: OutputColumns, chunks: Chunks, rows: int) -> Sink:
        """A sink that is connected and has made its temporary table."""
        if self.run_file is None:
            return create_table_sink(self.target, columns, chunks)
        receipts = _receipts_in(self.run_file)
        return create_table_sink(
            self.target, columns, chunks, receipts, lambda receipt: self._remember([*receipts, receipt])
        )

    def settle(self) -> None:
        """Notes that the write which the last receipt announced has been committed."""
        assert self.run_file is not None
        *_, last = _receipts_in(self.run_file)
        self._remember([replace(last, settled=True)])

    def _remember(self, receipts: list[WriteReceipt]) -> None:
        assert self.run_file is not None
        text = json.dumps([_stored(receipt) for receipt in receipts], ensure_ascii=False)
        writer = Writer(self.run_file)
        try:
            writer.do(lambda connection: changes.remember_table(connection, text))
        finally:
            writer.close(None)


def receipts_of(reader: RunFileReader) -> list[WriteReceipt]:
    """What the run has written into tables, or was about to."""
    found = json.loads(reader.metadata("table") or "[]")
    return [WriteReceipt(fields.pop("address"), names=tuple(fields.pop("names")), **fields) for fields in found]


def _stored(receipt: WriteReceipt) -> dict[str, object]:
    """A receipt as the run file keeps it, under the names that it has always had there."""
    fields = asdict(receipt)
    return {"address": fields.pop("url"), **fields}


def _receipts_in(run_file: Path) -> list[WriteReceipt]:
    with RunFileReader(run_file, checked=False) as reader:
        return receipts_of(reader)


def destination_of(job: Job, format: str, run_file: Path) -> FileDestination | TableDestination:
    """Where a job's output goes."""
    if job.target is not None:
        return TableDestination(job.target, run_file)
    return FileDestination(job.output, format, job.escape_formulas, job.split_rows)


def check_destination(target: Target, run_file: Path) -> None:
    """Raises OutputError where a table that the run would make is there, or the key of an upsert is not."""
    check_target(target, _receipts_in(run_file) if is_there(run_file) else ())


def output_fingerprint(job: Job) -> str:
    """What an output that was written looked like from outside; the same again means that it is untouched."""
    expect = job.answer.expect if job.answer is not None else {}
    shape: list[object] = [job.format, job.answer_prefix, job.meta_prefix, job.escape_formulas, expect]
    if job.split_rows is not None:
        shape.append(job.split_rows)
    target = job.target
    if target is not None:
        return json.dumps([str(target.url), target.table_name, target.mode, target.id, shape])
    name = job.output if is_remote(job.output) else str(Path(job.output).absolute())
    return json.dumps([name, stamp(job.output), shape])


def stands(reader: RunFileReader, job: Job) -> bool:
    """Whether the output stands there as this run file would write it.  Raises DatabaseError."""
    target = job.target
    if target is None:
        written = reader.metadata("written")
        return written is not None and exists(job.output) and written == output_fingerprint(job)
    receipts = [receipt for receipt in receipts_of(reader) if receipt.settled and receipt.is_of(target)]
    if reader.metadata("written") != output_fingerprint(job) or not receipts:
        return False
    rows = table_rows(target)
    return rows is not None and (target.mode in ("append", "upsert") or rows == receipts[-1].rows)
