"""Writes a finished run's output and failures, unless they stand there already as the run file would write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rowmill.core.names.files import failures_path
from rowmill.core.replies.accuracy import Accuracy
from rowmill.core.rows.outputs.batch_result_lines import RESULT_FORMS
from rowmill.io.files import exists
from rowmill.io.sinks import translated
from rowmill.runner.output.batch_results import write_results
from rowmill.runner.output.destinations import TableDestination, destination_of, output_fingerprint, stands
from rowmill.runner.output.exporting import write_failures, write_output
from rowmill.runner.output.untouched import writing
from rowmill.runner.setup.plan import Plan
from rowmill.store import changes
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer


class AccuracyFound(NamedTuple):
    """What the answers were worth, as the run file keeps it beside the output's fingerprint."""

    object: Mapping[str, object] | None = None
    lines: Sequence[str] = ()


class FinalOutput(NamedTuple):
    """Where output and failures are, None where there are none."""

    output: str | None = None
    failures: str | None = None
    accuracy: AccuracyFound = AccuracyFound()


def final_output(plan: Plan, reader: RunFileReader, counts: Mapping[str, int]) -> FinalOutput:
    """Raises OutputError and DatabaseError."""
    job = plan.job
    with translated(job.output):
        if stands(reader, job):
            path, stored = failures_path(job.stem), reader.metadata("accuracy")
            known = AccuracyFound() if stored is None else AccuracyFound(*json.loads(stored))
            return FinalOutput(job.output, path if exists(path) else None, known)
    accuracy = Accuracy(job.answer.expect) if job.answer is not None and job.answer.expect else None
    with writing(job, reader):
        failures = _write(plan, reader, counts, accuracy)
    found = AccuracyFound() if accuracy is None else AccuracyFound(accuracy.object(), accuracy.lines())
    with translated(job.output):
        fingerprint = output_fingerprint(job)
    writer = Writer(plan.run_file)
    writer.do(lambda c: changes.remember_written(c, fingerprint, json.dumps(found)))
    writer.close(None)
    return FinalOutput(job.output, failures, found)


def _write(plan: Plan, reader: RunFileReader, counts: Mapping[str, int], accuracy: Accuracy | None) -> str | None:
    """Writes both; where the failures are, if there are any."""
    job = plan.job
    if plan.format in RESULT_FORMS:
        return write_results(reader, job.output, failures_path(job.output), plan.format).failures
    destination = destination_of(job, plan.format, plan.run_file)
    write_output(reader, job, destination, accuracy=accuracy)
    if isinstance(destination, TableDestination):
        destination.settle()
    return write_failures(reader, job.stem, counts)
