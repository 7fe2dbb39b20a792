"""From a job to what a run needs, checked as far as it can be before anything is written or sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowmill.core.names.databases import DatabaseUrl, Target, name_faults
from rowmill.core.names.files import failures_path
from rowmill.core.requests.batch_lines import looks_like_batch
from rowmill.core.requests.expressions import compile_expression
from rowmill.core.requests.routing import Route, Router, RowRouter
from rowmill.core.rows.chunks import ObjectChunk
from rowmill.core.rows.outputs import AnswerColumn, OutputColumns
from rowmill.core.rows.outputs.batch_result_lines import BATCH, RESULT_FORMS
from rowmill.core.rows.outputs.earlier import columns_set_aside
from rowmill.core.rows.selection import select
from rowmill.errors import JobError, OutputError
from rowmill.io.sinks import check_writable, format_of
from rowmill.io.sources import open_database, open_source
from rowmill.job import Job, definition
from rowmill.job.faults import MISSING
from rowmill.job.model import effective_params
from rowmill.ports import AnswerReader, Chunk, RequestBuilder, Source
from rowmill.runner.setup.distinct_files import check_distinct, job_files
from rowmill.runner.setup.endpoint_prompts import EndpointPrompt, EndpointPrompts, compile_endpoint_prompts, gather
from rowmill.store.ids import unique_ids


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, compiled.

    `prompt` is what the first endpoint is asked.  `names`: the columns that decide what is sent, sorted; None where
    any may.  `endpoint_prompts` is None where only `prompt` is asked, of one endpoint.
    """

    job: Job
    prompt: RequestBuilder
    schema: AnswerReader | None
    names: Sequence[str] | None
    output: str
    run_file: Path
    format: str
    endpoint_prompts: EndpointPrompts | None = None

    @property
    def value_names(self) -> Sequence[str] | None:
        """The columns that the engine needs."""
        return self.names if self.endpoint_prompts is None else self.endpoint_prompts.value_names

    @property
    def key_names(self) -> Sequence[str] | None:
        """What a row is known by (see `row_keys`)."""
        return self.names if self.endpoint_prompts is None else self.endpoint_prompts.key_names

    def endpoint_prompt(self, index: int) -> EndpointPrompt:
        """What the endpoint of this index is asked."""
        if self.endpoint_prompts is not None:
            return self.endpoint_prompts.each[index]
        return EndpointPrompt(self.prompt, effective_params(self.job, self.job.endpoints[index]))

    @property
    def router(self) -> RowRouter:
        """The way of rows to endpoints."""
        return (
            Router([Route()] * len(self.job.endpoints))
            if self.endpoint_prompts is None
            else self.endpoint_prompts.router
        )

    def check(self, columns: Sequence[str]) -> None:
        """Raises JobError for columns that are used and not there."""
        if self.endpoint_prompts is not None:
            self.endpoint_prompts.check(columns)
        else:
            self.prompt.check_columns(columns)

    @property
    def target(self) -> Target | None:
        """The table that the output goes to; None where it is the file `output`."""
        return self.job.target

    def output_columns(self, inputs: Sequence[str], **shown: bool) -> OutputColumns:
        """The output's columns for these input columns; raises OutputError for clashes."""
        columns = columns_of(self.job, self.schema, inputs, **shown)
        if self.format not in RESULT_FORMS:
            columns.check()
        if self.target is not None:
            faults = name_faults(self.target.url.kind, columns.names)
            if faults:
                raise OutputError(*faults)
        return columns

    def definition(self) -> dict[str, Any]:
        """What is sent besides the rows."""
        return definition(self.job, self.schema.json_schema if self.schema else None)


def make_plan(job: Job, *, run_file: str | None = None) -> Plan:
    """Compiles a job; raises JobError with all that is wrong with prompt, schema and output."""
    faults = _not_for_batch(job) if job.is_batch else []
    endpoint_prompts = gather(faults, lambda: compile_endpoint_prompts(job))
    schema = gather(faults, lambda: job.answer.compiled if job.answer else None)
    if job.target is not None:
        form: str | None = "table"
    else:
        form = gather(faults, lambda: form_of(job, job.output, job.format))
        gather(faults, lambda: check_writable(job.output, in_parts=job.split_rows is not None))
        if job.split_rows is not None and form in RESULT_FORMS:
            faults.append("split_rows: the results of a batch file are one file; take it out, or name another format")
    if faults or endpoint_prompts is None or form is None:
        raise JobError(*faults)
    run_path = Path(run_file or job.run_file_path)
    check_distinct(job_files(job, str(run_path), failures_path(job.stem)))
    return Plan(
        job=job,
        prompt=endpoint_prompts.each[0].prompt,
        schema=schema,
        names=endpoint_prompts.names,
        output=job.output,
        run_file=run_path,
        format=form,
        endpoint_prompts=endpoint_prompts,
    )


def form_of(job: Job, path: str, stated: str | None) -> str:
    """The format that `path` is written in; the results of a batch file are in the Batch API's shape unless stated.

    Raises OutputError.
    """
    if stated in RESULT_FORMS and not job.is_batch:
        raise OutputError(f"--format {stated} is for the results of batch files, which are run without a prompt")
    form = stated or format_of(path)
    return BATCH if job.is_batch and stated is None and form == "jsonl" else form


def _not_for_batch(job: Job) -> list[str]:
    """What a job without a prompt cannot have, one sentence each."""
    why = "there is no prompt, and the lines of a batch file say themselves what is asked"
    faults = []
    if job.system is not None:
        faults.append(f"system: {why}; take it out, or give -p/--prompt")
    if job.answer is not None:
        faults.append(f"answer: {why}; take it out, or read the replies by it afterwards: rowmill export --answer")
    if any(endpoint.prompt is not None for endpoint in job.endpoints):
        faults.append(f"endpoints: a prompt of an endpoint's own: {why}; take it out, or give -p/--prompt")
    if job.empty != "send":
        faults.append(f"empty: {why}; take it out, or give -p/--prompt")
    return faults


def columns_of(
    job: Job,
    schema: AnswerReader | None,
    inputs: Sequence[str],
    *,
    reasoning: bool = False,
    duplicates: bool = False,
) -> OutputColumns:
    """The output's columns in order, unchecked."""
    kinds = schema.columns if schema is not None else (("answer", "string"),)
    set_aside = columns_set_aside(inputs, job.meta_prefix)
    return OutputColumns(
        tuple(name for name in inputs if name not in set_aside),
        tuple(AnswerColumn(name, kind) for name, kind in kinds),  # type: ignore[arg-type]
        job.answer_prefix,
        job.meta_prefix,
        with_reasoning=reasoning,
        with_duplicates=duplicates,
        set_aside=set_aside,
    )


@dataclass(frozen=True, slots=True)
class Input:
    """The opened input: its chosen rows, and how many there may be (None: not known before it is read).

    `notes` is what the user should know about them, a sentence each; `first` are the first of the rows.
    """

    chunks: Iterator[Chunk]
    size_hint: int | None
    is_empty: bool
    notes: Sequence[str] = ()
    first: Chunk | None = None


def open_input(plan: Plan, source: Source | None = None) -> Input:
    """Opens the source, looks at its first rows and checks the prompt and the output's columns against them.

    `source` stands in for the one that the job names.
    """
    job = plan.job
    if source is None:
        source = _source_of(job)
    where = compile_expression(job.where)[0] if job.where else None
    chunks = select(
        source.chunks,
        where=where,
        limit=job.limit,
        sample=job.sample,
        seed=job.seed,
        rereadable=source.rereadable,
    )
    id = job.id
    if id is not None and not _is_made_by_us(job, id):
        chunks = unique_ids(chunks, id)
    known = source.columns()
    if known:
        plan.check(known)
        _check_expected(job, known)
        plan.output_columns(known)
    first = next(chunks, None)
    if first is None:
        return Input(iter(()), 0, is_empty=True)
    if known is None:
        _check_first(plan, first)
    chosen = where is not None or job.sample is not None or job.limit is not None
    hint = None if chosen else source.size_hint()
    notes = _batch_notes(job, first) if job.is_batch else _earlier_notes(job, first.columns)
    return Input(itertools.chain((first,), chunks), hint, is_empty=False, notes=notes, first=first)


def _source_of(job: Job) -> Source:
    if isinstance(job.source, DatabaseUrl):
        return open_database(job.source, job.query, job.table if job.query is None else None)
    return open_source(job.source, encoding=job.encoding, delimiter=job.delimiter, sheet=job.sheet)


def _is_made_by_us(job: Job, name: str) -> bool:
    """Whether a column is none of the input's but one that the output adds."""
    return name in columns_of(job, job.answer.compiled if job.answer else None, ()).names


def _check_first(plan: Plan, first: Chunk) -> None:
    if plan.job.is_batch and not looks_like_batch(_first_line(first)):
        raise JobError(
            f"prompt: {MISSING['prompt']}; only a batch file needs none, and the first line of {plan.job.source} "
            "has no custom_id, url and body"
        )
    if len(first.faults) < len(first):
        plan.check(first.columns)
        _check_expected(plan.job, first.columns)
    plan.output_columns(first.columns)


def _first_line(chunk: Chunk) -> Mapping[str, Any]:
    """The first JSON object among the input's lines."""
    lines = chunk.records() if isinstance(chunk, ObjectChunk) else iter(())
    return next((line for at, line in enumerate(lines) if at not in chunk.faults), {})


def _batch_notes(job: Job, first: Chunk) -> list[str]:
    """Which of two models and parameters count, where body and job both name them."""
    notes = []
    if job.params:
        notes.append(f"{', '.join(job.params)}: the job's go over those of every body")
    body = _first_line(first).get("body")
    named = body.get("model") if isinstance(body, Mapping) else None
    asked = job.endpoints[0].model
    if isinstance(named, str) and "model" not in job.params and asked != named and not asked.endswith(f"/{named}"):
        notes.append(
            f"bodies keep the models that they name (the first: {named}); -m {asked} says where they are sent, "
            "and --param model=NAME puts one model into all of them"
        )
    return notes


def _earlier_notes(job: Job, columns: Sequence[str]) -> list[str]:
    set_aside = columns_set_aside(columns, job.meta_prefix)
    if not set_aside:
        return []
    named = ", ".join(name for name in columns if name in set_aside)
    return [f"the input is an output of Rowmill: its columns {named} are set aside (another --meta-prefix keeps them)"]


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
