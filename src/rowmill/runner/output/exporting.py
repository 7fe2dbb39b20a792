"""From a run file to an output: streamed in input order into a temporary file that takes the final name at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowmill.core.measures.gc_threshold import rare_collections
from rowmill.core.names.databases import database_url, is_database, make_target
from rowmill.core.names.files import default_run_file, failures_path, is_remote, without_file_scheme
from rowmill.core.replies.accuracy import Accuracy
from rowmill.core.rows.outputs import Batch, failure_record
from rowmill.core.rows.outputs.batch_result_lines import RESULT_FORMS
from rowmill.errors import JobError, OutputError, RunFileError
from rowmill.io.sinks import check_target, check_writable, format_of, remove
from rowmill.io.sinks.jsonl import JsonLinesFile
from rowmill.job import Job, apply_overrides
from rowmill.ports import AnswerReader, Chunk, Sink
from rowmill.records import GOOD, Outcome, Status
from rowmill.runner.output.batch_results import write_results
from rowmill.runner.output.destinations import Destination, FileDestination, TableDestination
from rowmill.runner.output.rereading import Reread
from rowmill.runner.output.untouched import writing
from rowmill.runner.setup.distinct_files import check_distinct, is_same_file, job_files
from rowmill.runner.setup.plan import columns_of, form_of
from rowmill.store.connection import damage
from rowmill.store.lock import RunFileLock
from rowmill.store.reader import RunFileReader

RAW_CHARS = 500


def run_file_of(output: str, run_file: str | None) -> Path:
    """Where the run file of an output is; the run file itself may be named instead."""
    if run_file is not None:
        return Path(run_file)
    if is_database(output):
        raise JobError(
            "the run file of a database's output has a name of its own, like shop.reviews.rowmill (a run names it at "
            "its end): name the run file in place of the database"
        )
    return Path(output) if output.endswith(".rowmill") else Path(default_run_file(output))


def stored_job(reader: RunFileReader) -> Job:
    """The job that a run file was made by."""
    text = reader.metadata("job")
    if text is None:
        raise RunFileError(f"{reader.path} holds no job yet; nothing was run with it")
    files = json.loads(reader.metadata("files") or "[]")
    return Job.from_json(text).read_from([(what, path) for what, path in files])


def job_at(job: Job, output: str) -> Job:
    """A stored job whose output is where the user names it: run file and output may have been moved."""
    if is_remote(job.output) or (job.target is not None and not is_database(output)):
        return job
    return apply_overrides(job, {"output": output.removesuffix(".rowmill")})


def sendable_job(reader: RunFileReader, output: str) -> Job:
    """The stored job where its rows can be sent once more.  Raises RunFileError where they cannot."""
    refuse_purged(reader)
    job = stored_job(reader)
    if job.calls_function:
        raise RunFileError(
            f"{reader.path} is of a `map` that calls a function, which is not in it: the same call in Python goes on "
            "with it"
        )
    return job_at(job, output)


def refuse_purged(reader: RunFileReader) -> None:
    """Raises RunFileError where the inputs are gone."""
    when = reader.metadata("purged")
    if when is not None:
        raise RunFileError(
            f"{reader.path} was purged on {when}: its inputs and replies are gone, so no row of it can be sent again; "
            "`rowmill export` still writes the answers, and --fresh begins anew beside it"
        )


@dataclass(frozen=True, slots=True)
class ExportRules:
    """How an export is written; None is as the run was.

    `table`, `mode` and `id` are for a database, as a job has them, `split_rows` for a folder of parts of at most that
    many rows.  `answer` is another schema, under which the stored replies are read again; nothing is sent.
    """

    format: str | None = None
    table: str | None = None
    mode: str | None = None
    id: str | None = None
    split_rows: int | None = None
    escape_formulas: bool = False
    answer_prefix: str | None = None
    meta_prefix: str | None = None
    answer: str | None = None


def export(output: str, *, target: str, run_file: str | None = None, rules: ExportRules | None = None) -> int:
    """Writes the finished rows of a run into a file or a database, also while it runs, and returns how many.

    Of a damaged run file it writes what can still be read and then raises RunFileError, saying how much that was.
    """
    rules = rules or ExportRules()
    with RunFileReader(run_file_of(output, run_file), checked=False) as reader, reader.frozen():
        job = stored_job(reader)
        target = without_file_scheme(target)
        destination = _export_destination(job, target, rules)
        _check_spared(reader, job, destination)
        _check_replies(reader, destination, rules)
        with _as_own_output(reader, job_at(job, output), destination):
            written = _write_export(reader, job, destination, rules)
        if reader.lost_chunks:
            raise RunFileError(
                f"{damage(reader.path, 'parts of it cannot be read')}; {written:,} rows were written to {target}"
            )
        return written


@contextmanager
def _as_own_output(reader: RunFileReader, job: Job, destination: FileDestination | TableDestination) -> Iterator[None]:
    """An export in the place of the run's own output is the run's, and will be replaced when the run goes on."""
    if isinstance(destination, TableDestination) or not is_same_file(destination.path, job.output):
        yield
        return
    with RunFileLock(reader.path), writing(job, reader):
        yield


def _write_export(
    reader: RunFileReader, job: Job, destination: FileDestination | TableDestination, rules: ExportRules
) -> int:
    prefixes = {"answer_prefix": rules.answer_prefix, "meta_prefix": rules.meta_prefix}
    job = job.model_copy(update={name: prefix for name, prefix in prefixes.items() if prefix is not None})
    reread = None
    if rules.answer is not None:
        job = apply_overrides(job.model_copy(update={"answer": None}), {"answer": rules.answer})
        reread = Reread(job)
    if isinstance(destination, FileDestination) and destination.format in RESULT_FORMS:
        path = destination.path
        return write_results(reader, path, failures_path(path), destination.format, salvage=True).rows
    return write_output(reader, job, destination, salvage=True, reread=reread)


def _check_replies(reader: RunFileReader, destination: FileDestination | TableDestination, rules: ExportRules) -> None:
    """Raises RunFileError where an export needs replies that were purged."""
    is_results = isinstance(destination, FileDestination) and destination.format in RESULT_FORMS
    if reader.metadata("purged") is not None and (is_results or rules.answer is not None):
        needs = "the results of a batch file are its replies: name a table, like -o ANSWERS.csv"
        raise RunFileError(
            f"the replies in {reader.path} were purged, and "
            + (needs if is_results else "--answer reads them: only the answers as they are can be exported")
        )


def _check_spared(reader: RunFileReader, job: Job, destination: FileDestination | TableDestination) -> None:
    """Raises OutputError where the export would be written over another file of the run than its output."""
    files = job_files(job, str(reader.path), failures_path(job.stem))
    if isinstance(destination, TableDestination):
        url = destination.target.url
        check_distinct([[*files.run_file, *files.failures], [("the export", url.path)] * (url.kind != "postgresql")])
        return
    check_distinct([[*files.read, *files.failures, *files.run_file], [("the export", destination.path)]])
    if destination.format in RESULT_FORMS:
        errors = [("the export's file of errors", failures_path(destination.path))]
        check_distinct([[*files.read, *files.run_file], errors])


def _export_destination(job: Job, target: str, rules: ExportRules) -> FileDestination | TableDestination:
    """Where an export goes, checked."""
    if is_database(target):
        return _export_table(target, rules)
    if rules.table or rules.mode or rules.id:
        raise OutputError("--table, --mode and --id are for a database as the output")
    form = form_of(job, target, rules.format) if rules.answer is None else rules.format or format_of(target)
    if form in RESULT_FORMS:
        if rules.answer is not None:
            raise JobError(f"answer: --format {form} has no columns for it; take one of the two out")
        if rules.split_rows is not None:
            raise OutputError("--split-rows is for files of columns")
    check_writable(target, in_parts=rules.split_rows is not None)
    return FileDestination(target, form, rules.escape_formulas or job.escape_formulas, rules.split_rows)


def _export_table(target: str, rules: ExportRules) -> TableDestination:
    if rules.format is not None:
        raise OutputError("--format is for files; a database has its own")
    if rules.split_rows is not None:
        raise OutputError("--split-rows is for files of columns")
    try:
        found = make_target(database_url(target), rules.table, rules.mode, rules.id)
    except ValueError as error:
        raise OutputError(str(error)) from None
    check_target(found)
    return TableDestination(found)


@rare_collections()
def write_output(
    reader: RunFileReader,
    job: Job,
    destination: Destination,
    *,
    salvage: bool = False,
    reread: Reread | None = None,
    accuracy: Accuracy | None = None,
) -> int:
    """Streams every finished row into `destination`; returns how many rows that were.

    `reread` reads the stored replies anew; `accuracy` counts the answers of rows that ended ok.
    """
    schema: AnswerReader | None = job.answer.compiled if job.answer else None
    totals = reader.totals()
    columns = columns_of(job, schema, reader.columns(), reasoning=totals.reasoning, duplicates=totals.duplicates)
    columns.check()
    sink: Sink = destination.open(columns, _input_of(reader, salvage), sum(totals.counts.values()))
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
