"""From a run file to an output: streamed in input order into a temporary file that takes the final name at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rowmill.answers import AnswerSchema
from rowmill.confusion import Accuracy
from rowmill.databases import address, is_database, make_target
from rowmill.errors import JobError, OutputError, RunFileError
from rowmill.job import Job, apply_overrides
from rowmill.outputs import Batch, failure_record
from rowmill.outputs.openai_batch import RESULT_FORMS
from rowmill.ports import Chunk, Sink
from rowmill.records import GOOD, Outcome, Status
from rowmill.runner.batch_results import write_results
from rowmill.runner.collector import rare_collections
from rowmill.runner.places import FilePlace, Place, TablePlace
from rowmill.runner.plan import columns_of, form_of
from rowmill.runner.rereading import Reread
from rowmill.sinks import check_target, check_writable, format_of
from rowmill.sinks.jsonl import JsonLinesFile
from rowmill.store.connection import damage
from rowmill.store.reader import RunFileReader

RAW_CHARS = 500


def run_file_of(output: str, run_file: str | None) -> Path:
    """Where the run file of an output is; the run file itself may be named in its place."""
    if run_file is not None:
        return Path(run_file)
    if is_database(output):
        raise JobError(
            "the run file of a database's output has a name of its own, like shop.reviews.rowmill (a run names it at "
            "its end): name the run file in place of the database"
        )
    return Path(output) if output.endswith(".rowmill") else Path(output + ".rowmill")


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
    table: str | None = None,
    mode: str | None = None,
    id: str | None = None,
    escape_formulas: bool = False,
    answer_prefix: str | None = None,
    meta_prefix: str | None = None,
    answer: str | None = None,
) -> int:
    """Writes the finished rows of a run, also while it runs, and returns how many.

    `target` is a file, or a database with `table`, `mode` and `id` as a job has them.
    `answer` is another schema, under which the stored replies are read again; nothing is sent.

    Of a damaged run file it writes what can still be read and then raises RunFileError, saying how much that was.
    """
    reader = RunFileReader(run_file_of(output, run_file), checked=False)
    try:
        job = stored_job(reader)
        place = _export_place(job if answer is None else None, target, format, (table, mode, id))
        if answer is not None and isinstance(place, FilePlace) and place.format in RESULT_FORMS:
            raise JobError(f"answer: --format {place.format} has no columns for it; take one of the two out")
        changes: dict[str, Any] = {}
        if isinstance(place, FilePlace) and (escape_formulas or job.escape_formulas):
            place = replace(place, escape_formulas=True)
        if answer_prefix is not None:
            changes["answer_prefix"] = answer_prefix
        if meta_prefix is not None:
            changes["meta_prefix"] = meta_prefix
        job = job.model_copy(update=changes)
        reread = None
        if answer is not None:
            job = apply_overrides(job.model_copy(update={"answer": None}), {"answer": answer})
            reread = Reread(job)
        if isinstance(place, FilePlace) and place.format in RESULT_FORMS:
            written = write_results(reader, target, failures_path(target), place.format, salvage=True).rows
        else:
            written = write_output(reader, job, place, salvage=True, reread=reread)
        if reader.lost_chunks:
            raise RunFileError(
                f"{damage(reader.path, 'parts of it cannot be read')}; {written:,} rows were written to {target}"
            )
        return written
    finally:
        reader.close()


def _export_place(
    job: Job | None, target: str, format: str | None, named: tuple[str | None, str | None, str | None]
) -> FilePlace | TablePlace:
    """Where an export goes; `job` None: as columns, whatever was run.  `named` are table, mode and id."""
    if not is_database(target):
        if any(named):
            raise OutputError("--table, --mode and --id are for a database as the output")
        form = (format or format_of(target)) if job is None else form_of(job, target, format)
        check_writable(target)
        return FilePlace(target, form)
    if format is not None:
        raise OutputError("--format is for files; a database has its own")
    try:
        found = make_target(address(target), *named)
    except ValueError as error:
        raise OutputError(str(error)) from None
    check_target(found)
    return TablePlace(found)


@rare_collections()
def write_output(
    reader: RunFileReader,
    job: Job,
    place: Place,
    *,
    salvage: bool = False,
    reread: Reread | None = None,
    accuracy: Accuracy | None = None,
) -> int:
    """Streams every finished row into `place`; returns how many rows that were.

    `reread` reads the stored replies anew; `accuracy` counts the answers of rows that ended ok.
    """
    schema: AnswerSchema | None = job.answer.compiled if job.answer else None
    totals = reader.totals()
    columns = columns_of(job, schema, reader.columns(), reasoning=totals.reasoning, duplicates=totals.duplicates)
    columns.check()
    sink: Sink = place.open(columns, _input_of(reader, salvage))
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


def failures_path(output: str) -> Path:
    """Where the rows go that ended badly."""
    return Path(output + ".failed.jsonl")


def write_failures(reader: RunFileReader, output: str, counts: Mapping[str, int]) -> str | None:
    """Writes OUTPUT.failed.jsonl, or takes an old one away where no row ended badly; its path if there is one."""
    path = failures_path(output)
    if not any(number for status, number in counts.items() if status not in GOOD):
        path.unlink(missing_ok=True)
        return None
    file = JsonLinesFile(str(path))
    try:
        for chunk, outcomes in reader.outcomes():
            file.append(_bad_records(reader, chunk, outcomes))
        file.commit()
    except BaseException:
        file.abort()
        raise
    return str(path)


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
