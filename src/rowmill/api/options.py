"""Keyword arguments into a job: the same names as the command line's options, with Python's values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from rowmill.errors import JobError
from rowmill.job import Job, job_from_options, load_job
from rowmill.job.faults import nearest

Path = str | os.PathLike[str]
Prompt = str | Sequence[Mapping[str, str]]


class AskOptions(TypedDict, total=False):
    """What `run` and `map` take besides prompt, model and answer.  None means not given.

    Names, meanings, units and defaults are those of the command line; times are in seconds.
    """

    system: str | None
    url: str | None
    key_env: str | None
    key_file: Path | None
    ca_file: Path | None
    headers: Mapping[str, str] | None
    run_file: Path | None
    in_flight: int | Literal["auto"] | None
    rpm: float | None
    tpm: float | None
    input_tpm: float | None
    output_tpm: float | None
    headroom: float | None
    max_tokens: int | None
    temperature: float | None
    params: Mapping[str, Any] | None
    attempts: int | None
    backoff_s: float | None
    max_backoff_s: float | None
    timeout_s: float | None
    connect_timeout_s: float | None
    row_timeout_s: float | None
    max_duration_s: float | None
    max_outage_s: float | None
    empty: Literal["send", "skip", "fail"] | None
    max_failure_rate: float | None
    answer_prefix: str | None
    meta_prefix: str | None
    on_change: Literal["keep", "rerun"] | None
    progress: bool


class RunOptions(AskOptions, total=False):
    """What `run` takes besides: choice of rows, files, and the command line's flags.

    `on_change` says what to do with rows answered under another job, `fresh` begins anew and renames what is there
    to *.old, `progress` shows the command line's progress on standard error.
    """

    format: Literal["jsonl", "csv", "tsv", "parquet", "batch", "run-batch"] | None
    query: str | None
    table: str | None
    mode: Literal["create", "append", "replace", "upsert"] | None
    id: str | None
    limit: int | None
    sample: int | None
    seed: int | None
    where: str | None
    encoding: str | None
    delimiter: str | None
    escape_formulas: bool | None
    fresh: bool


class MapOptions(AskOptions, total=False):
    """What `map` takes besides.  `retry` names statuses (`"failed"`) of a resumed run that are asked about again."""

    retry: str | Sequence[str] | None


class CallOptions(TypedDict, total=False):
    """What `map` takes with `call`.  Times are in seconds; None means the default.

    `in_flight` (20) calls at once, `rpm` calls a minute, `attempts` (4) for each row with back-off, `timeout_s`
    (120) for each.  `run_file` makes it resumable: values are then stored, and `version` says which code made
    them.  `on_error` "raise" (the default) raises the first row's exception at the end, "return" puts exceptions
    in their rows' places.  `retry` and `on_change` are about what a run file holds.
    """

    in_flight: int | None
    rpm: float | None
    headroom: float | None
    attempts: int | None
    backoff_s: float | None
    max_backoff_s: float | None
    timeout_s: float | None
    row_timeout_s: float | None
    max_duration_s: float | None
    max_outage_s: float | None
    run_file: Path | None
    version: str | int | None
    on_error: Literal["raise", "return"]
    on_change: Literal["keep", "rerun"] | None
    retry: str | Sequence[str] | None
    progress: bool


FLAGS = frozenset({"on_change", "progress", "fresh", "retry"})  # what is no part of the job


# Numbers that the job takes as floats; Python's callers write 60 for 60.0.
_FLOATS = frozenset(
    {"rpm", "tpm", "input_tpm", "output_tpm", "headroom", "backoff_s", "max_backoff_s", "timeout_s"}
    | {"connect_timeout_s", "row_timeout_s", "max_duration_s", "max_outage_s", "max_failure_rate"}
)


def make_job(source: Path, given: Mapping[str, Any]) -> Job:
    """The job that a source, or a job file with options over it, makes.  Raises JobError with every fault."""
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(name, str):
        raise JobError(f"source: must be a path, a glob or `-`, not {type(source).__name__}; for rows use rowmill.map")
    check_names(given, (*RunOptions.__annotations__, *MapOptions.__annotations__))
    options = {key: _plain(key, value) for key, value in given.items() if value is not None and key not in FLAGS}
    try:
        if name.lower().endswith((".yaml", ".yml")):
            return load_job(name, options)
        return job_from_options({"source": name, **options})
    except JobError as error:
        raise JobError(*map(_as_keyword, error.faults)) from None


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keyword arguments that are not known, with the nearest that is."""
    known = {*known, *Job.model_fields, "model", "answer"}
    faults = []
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            faults.append(f"{name}: unknown option" + (f"; did you mean {meant}?" if meant else ""))
    if faults:
        raise JobError(*faults)


def _as_keyword(fault: str) -> str:
    """`--in-flight: ...` as Python's callers write it."""
    return re.sub(r"^--([a-z-]+)(?=:)", lambda found: found[1].replace("-", "_"), fault)


def _plain(name: str, value: Any) -> Any:
    if name == "answer":
        return answer_schema(value)
    if name == "prompt" and not isinstance(value, str):
        return [dict(turn) for turn in value]
    if name == "headers" and isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name in _FLOATS and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def answer_schema(answer: Any) -> Any:
    """A schema as the job takes it: shorthand and JSON Schema as they are, a class as the schema of its fields.

    Raises JobError for what has none.
    """
    if isinstance(answer, str):
        return answer
    if isinstance(answer, Mapping):
        return dict(answer)
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(answer).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise JobError(f"answer: must be a schema, shorthand text, or a class with fields: {first}") from None
