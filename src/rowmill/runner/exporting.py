"""From a run file to an output: streamed in input order into a temporary file that takes the final name at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rowmill.addresses import default_run_file, without_file_scheme
from rowmill.answers import AnswerSchema
from rowmill.confusion import Accuracy
from rowmill.errors import RunFileError
from rowmill.job import Job, apply_overrides
from rowmill.outputs import Batch, failure_record
from rowmill.ports import Chunk, Sink
from rowmill.records import GOOD, Outcome, Status
from rowmill.runner.collector import rare_collections
from rowmill.runner.plan import columns_of
from rowmill.runner.rereading import Reread
from rowmill.sinks import OutputShape, check_writable, create_sink, format_of, remove
from rowmill.sinks.jsonl import JsonLinesFile
from rowmill.store.connection import damage
from rowmill.store.reader import RunFileReader

RAW_CHARS = 500


def run_file_of(output: str, run_file: str | None) -> Path:
    """Where the run file of an output is; the run file itself may be named in its place."""
    if run_file is not None:
        return Path(run_file)
    return Path(output) if output.endswith(".rowmill") else Path(default_run_file(output))


def stored_job(reader: RunFileReader) -> Job:
    """The job that a run file was made by."""
    text = reader.fact("job")
    if text is None:
        raise RunFileError(f"{reader.path} holds no job yet; nothing was run with it")
    return Job.from_json(text)


def export(
    output: str,
    *,
    run_file: str | None = None,
    target: str,
    format: str | None = None,
    escape_formulas: bool = False,
    answer_prefix: str | None = None,
    meta_prefix: str | None = None,
    answer: str | None = None,
    split_rows: int | None = None,
) -> int:
    """Writes the finished rows of a run, also while it runs, and returns how many.

    `answer` is another schema, under which the stored replies are read again; nothing is sent.  With `split_rows` the
    target is a folder of parts of at most that many rows.

    Of a damaged run file it writes what can still be read and then raises RunFileError, saying how much that was.
    """
    form = format or format_of(target)
    target = without_file_scheme(target)
    check_writable(target, in_parts=split_rows is not None)
    reader = RunFileReader(run_file_of(output, run_file), checked=False)
    try:
        job = stored_job(reader)
        changes: dict[str, Any] = {
            "escape_formulas": escape_formulas or job.escape_formulas,
            "split_rows": split_rows,
        }
        if answer_prefix is not None:
            changes["answer_prefix"] = answer_prefix
        if meta_prefix is not None:
            changes["meta_prefix"] = meta_prefix
        job = job.model_copy(update=changes)
        reread = None
        if answer is not None:
            job = apply_overrides(job.model_copy(update={"answer": None}), {"answer": answer})
            reread = Reread(job)
        written = write_output(reader, job, target, form, salvage=True, reread=reread)
        if reader.lost_chunks:
            raise RunFileError(
                f"{damage(reader.path, 'parts of it cannot be read')}; {written:,} rows were written to {target}"
            )
        return written
    finally:
        reader.close()


@rare_collections()
def write_output(
    reader: RunFileReader,
    job: Job,
    target: str,
    form: str,
    *,
    salvage: bool = False,
    reread: Reread | None = None,
    accuracy: Accuracy | None = None,
) -> int:
    """Streams every finished row into `target`; returns how many rows that were.

    `reread` reads the stored replies anew; `accuracy` counts the answers of rows that ended ok.
    """
    schema: AnswerSchema | None = job.answer.compiled if job.answer else None
    totals = reader.totals()
    columns = columns_of(job, schema, reader.columns(), reasoning=totals.reasoning, duplicates=totals.duplicates)
    columns.check()
    shape = OutputShape(form, job.escape_formulas, job.split_rows, sum(totals.counts.values()))
    sink: Sink = create_sink(target, shape, columns, _input_of(reader, salvage))
    written = 0
    try:
        for chunk, found in reader.outcomes(salvage=salvage):
            outcomes = found if reread is None else reread.outcomes(reader, found)
            batch = Batch(chunk, outcomes, columns)
            if accuracy is not None:
                _count_accuracy(accuracy, batch)
            written += len(batch)
            sink.write(batch)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return written


def _count_accuracy(accuracy: Accuracy, batch: Batch) -> None:
    expected = [field.column for field in accuracy.fields]
    rows = zip(batch.chunk.values(expected), batch.answers(), batch.finished, strict=True)
    for values, answer, outcome in rows:
        accuracy.add(answer if outcome.status is Status.OK else None, values)


def _input_of(reader: RunFileReader, salvage: bool) -> Any:
    def chunks() -> Iterator[Chunk]:
        return (chunk for chunk, _ in reader.outcomes(salvage=salvage))

    return chunks


def failures_path(output: str) -> str:
    """Where the rows go that ended badly."""
    return f"{output}.failed.jsonl"


def write_failures(reader: RunFileReader, output: str, counts: Mapping[str, int]) -> str | None:
    """Writes OUTPUT.failed.jsonl, or takes an old one away where no row ended badly; its path if there is one."""
    path = failures_path(output)
    if not any(number for status, number in counts.items() if status not in GOOD):
        remove(path)
        return None
    file = JsonLinesFile(path)
    try:
        for chunk, outcomes in reader.outcomes():
            file.append(_bad_records(reader, chunk, outcomes))
        file.commit()
    except BaseException:
        file.abort()
        raise
    return path


def _bad_records(reader: RunFileReader, chunk: Chunk, outcomes: list[Outcome | None]) -> list[Mapping[str, Any]]:
    bad = [(at, outcome) for at, outcome in enumerate(outcomes) if outcome is not None and outcome.status not in GOOD]
    if not bad:
        return []
    faults = chunk.faults
    records = chunk.take([at for at, _ in bad]).records()
    return [
        failure_record(record, outcome, _excerpt(reader, outcome, faults[at].raw if at in faults else None))
        for record, (at, outcome) in zip(records, bad, strict=True)
    ]


def _excerpt(reader: RunFileReader, outcome: Outcome, line: str | None) -> str | None:
    """The last reply's beginning, or the input line that is no row."""
    if line is not None:
        return line
    sent = outcome.index if outcome.duplicate_of is None else outcome.duplicate_of
    replies = [attempt["reply"] for attempt in reader.attempts(sent) if attempt["reply"]]
    return str(replies[-1])[:RAW_CHARS] if replies else None
