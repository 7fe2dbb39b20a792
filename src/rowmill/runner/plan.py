"""From a job to what a run needs, checked as far as it can be before anything is written or sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowmill.answers import AnswerSchema
from rowmill.errors import JobError, OutputError
from rowmill.job import Job, definition
from rowmill.outputs import AnswerColumn, OutputColumns
from rowmill.ports import Chunk, Source
from rowmill.prompts import Prompt, check_columns, compile_expression, compile_prompt
from rowmill.selection import select
from rowmill.sinks import check_writable, format_of
from rowmill.sources import open_source


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, compiled.  `names`: the columns that the prompt uses, sorted; None where it may use any.

    `route` says of a row's index which endpoint it is for; None: whichever is free.
    """

    job: Job
    prompt: Prompt
    schema: AnswerSchema | None
    names: Sequence[str] | None
    output: Path
    run_file: Path
    format: str
    route: Callable[[int], int] | None = None

    def output_columns(self, inputs: Sequence[str], **shown: bool) -> OutputColumns:
        """The output's columns for these input columns; raises OutputError for clashes."""
        columns = columns_of(self.job, self.schema, inputs, **shown)
        columns.check()
        return columns

    def definition(self) -> dict[str, Any]:
        """What is sent besides the rows."""
        return definition(self.job, self.schema.json_schema if self.schema else None)


def make_plan(job: Job, *, run_file: str | None = None) -> Plan:
    """Compiles a job; raises JobError with all that is wrong with prompt, schema and output."""
    faults: list[str] = []
    prompt = _gather(faults, lambda: compile_prompt(job.messages))
    schema = _gather(faults, lambda: job.answer.compiled if job.answer else None)
    form = _gather(faults, lambda: job.format or format_of(job.output))
    _gather(faults, lambda: check_writable(job.output))
    if faults or prompt is None or form is None:
        raise JobError(*faults)
    names = None if prompt.columns is None else sorted(prompt.columns)
    return Plan(job, prompt, schema, names, Path(job.output), Path(run_file or job.run_file_path), form)


def columns_of(
    job: Job,
    schema: AnswerSchema | None,
    inputs: Sequence[str],
    *,
    reasoning: bool = False,
    duplicates: bool = False,
) -> OutputColumns:
    """The output's columns in order, unchecked."""
    kinds = schema.columns if schema is not None else (("answer", "string"),)
    return OutputColumns(
        tuple(inputs),
        tuple(AnswerColumn(name, kind) for name, kind in kinds),  # type: ignore[arg-type]
        job.answer_prefix,
        job.meta_prefix,
        with_reasoning=reasoning,
        with_duplicates=duplicates,
    )


@dataclass(frozen=True, slots=True)
class Input:
    """The opened input: its chosen rows, and how many there may be (None: not known before it is read)."""

    chunks: Iterator[Chunk]
    size_hint: int | None
    is_empty: bool


def open_input(plan: Plan, source: Source | None = None) -> Input:
    """Opens the source, looks at its first rows and checks the prompt and the output's columns against them.

    `source` stands in for the one that the job names.
    """
    job = plan.job
    if source is None:
        source = open_source(job.source, encoding=job.encoding, delimiter=job.delimiter)
    where = compile_expression(job.where)[0] if job.where else None
    chunks = select(
        source.chunks,
        where=where,
        limit=job.limit,
        sample=job.sample,
        seed=job.seed,
        rereadable=source.rereadable,
    )
    known = source.columns()
    if known:
        check_columns(plan.prompt, known)
        _check_expected(job, known)
        plan.output_columns(known)
    first = next(chunks, None)
    if first is None:
        return Input(iter(()), 0, is_empty=True)
    if known is None:
        _check_first(plan, first)
    chosen = where is not None or job.sample is not None or job.limit is not None
    hint = None if chosen else source.size_hint()
    return Input(itertools.chain((first,), chunks), hint, is_empty=False)


def _check_first(plan: Plan, first: Chunk) -> None:
    if len(first.faults) < len(first):
        check_columns(plan.prompt, first.columns)
        _check_expected(plan.job, first.columns)
    plan.output_columns(first.columns)


def _check_expected(job: Job, columns: Sequence[str]) -> None:
    expected = job.answer.expect if job.answer is not None else {}
    missing = sorted(set(expected.values()).difference(columns))
    if missing:
        raise JobError(f"answer.expect: there is no column {', '.join(missing)}; there are {', '.join(columns)}")


def watch_columns(plan: Plan) -> Callable[[Sequence[str]], None]:
    """Refuses an input column that clashes with the output's, also where it turns up late in the input."""

    def check(names: Sequence[str]) -> None:
        try:
            plan.output_columns(names)
        except OutputError as error:
            raise OutputError(*error.faults) from None

    return check


def _gather(faults: list[str], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except JobError as error:
        faults.extend(error.faults)
        return None
