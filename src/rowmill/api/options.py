"""Keyword arguments into a job: the same names as the command line's options, with Python's values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from rowmill.api.kinds import check_kinds
from rowmill.errors import JobError
from rowmill.job import Job, job_from_options, load_job
from rowmill.job.faults import nearest
from rowmill.job.option_table import OPTIONS, check_choice
from rowmill.job.options import ENDPOINT

if TYPE_CHECKING:
    from rowmill.core.pricing.quote import Quote

Path = str | os.PathLike[str]
Prompt = str | Sequence[Mapping[str, str]]


class AskOptions(TypedDict, total=False):
    """What `run` and `map` take besides prompt, model and answer.  None means not given.

    Names, meanings, units and defaults are those of the command line and of the job file; times are in seconds.
    `endpoints` are mappings as in a job file, in place of model, url and what else belongs to one endpoint.  `repair`,
    `fallback`, `fallback_for` and `expect` are about answers that do not fit, and about right ones.
    """

    system: str | None
    url: str | None
    key_env: str | None
    key_file: Path | None
    ca_file: Path | None
    headers: Mapping[str, str] | None
    endpoints: Sequence[Mapping[str, Any]] | None
    price: Mapping[str, Any] | None
    http: Mapping[str, Any] | None
    repair: int | None
    fallback: Any
    fallback_for: str | Sequence[str] | None
    expect: Mapping[str, str] | None
    budget_usd: float | None
    dedupe: bool | None
    static_prompt: bool | None
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
    to *.old, `progress` shows the command line's progress on standard error.  `pilot` rows are answered first;
    `approve` is shown the quote that they give and says whether to go on.  Without it a `budget_usd` must stand guard.
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
    sheet: str | int | None
    escape_formulas: bool | None
    split_rows: int | None
    pilot: int | None
    approve: Callable[[Quote], bool] | None
    fresh: bool


class MapOptions(AskOptions, total=False):
    """What `map` takes besides.  `retry` names statuses (`"failed"`) of a resumed run that are asked about again.

    Rows that end badly are rows, told by `_status` and `_error`.  With `on_error` "raise" the first of them is raised
    as RowError once all have been tried and saved; with "return" RowErrors stand in their rows' places, which a
    frame cannot hold.
    """

    on_error: Literal["raise", "return"] | None
    retry: str | Sequence[str] | None


class CallOptions(TypedDict, total=False):
    """What `map` takes with `call`.  Times are in seconds; None means the default.

    `in_flight` (20) calls at once, `rpm` calls a minute, `attempts` (4) for each row with back-off, `timeout_s`
    (120) for each.  `run_file` makes it resumable: values are then stored, and `version` says which code made
    them.  `on_error` "raise" (the default) raises the first row's exception at the end, "return" puts exceptions
    in their rows' places.  `max_failure_rate` (0 to 1) ends a hopeless run after 50 rows.  `retry` and `on_change` are
    about what a run file holds.
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
    max_failure_rate: float | None
    run_file: Path | None
    version: str | int | None
    on_error: Literal["raise", "return"]
    on_change: Literal["keep", "rerun"] | None
    retry: str | Sequence[str] | None
    progress: bool


FLAGS = frozenset({"on_change", "progress", "fresh", "retry", "on_error", "approve"})  # what is no part of the job
NAMED = frozenset({"prompt", "model", "answer", "output"})
OWNERS: Mapping[str, Iterable[str]] = {
    "rowmill.map with a prompt": MapOptions.__annotations__,
    "rowmill.run": RunOptions.__annotations__,
    "rowmill.map with call": CallOptions.__annotations__,
}


def make_job(
    source: Path | Sequence[Path], given: Mapping[str, Any], known: Iterable[str] = RunOptions.__annotations__
) -> Job:
    """The job that a source, or a job file with options over it, makes.  Raises JobError with every fault."""
    name = _source_name(source)
    check_names(given, {*known, *NAMED})
    check_kinds(given)
    options = {key: _plain(key, value) for key, value in given.items() if value is not None and key not in FLAGS}
    twice = sorted(set(ENDPOINT).intersection(options)) if "endpoints" in options else ()
    if twice:
        raise JobError(f"{', '.join(twice)}: belongs to one endpoint; put it into the mappings of endpoints")
    try:
        if isinstance(name, str) and name.lower().endswith((".yaml", ".yml")):
            return load_job(name, options)
        return job_from_options({"source": name, **options})
    except JobError as error:
        raise JobError(*map(_as_keyword, error.faults)) from None


def _source_name(source: object) -> str | list[str]:
    """A path, or several."""
    parts = source if isinstance(source, list | tuple) and source else [source]
    names = [os.fspath(part) if isinstance(part, str | os.PathLike) else None for part in parts]
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names):
        raise JobError(f"source: must be a path, a glob or `-`, not {type(source).__name__}; for rows use rowmill.map")
    return texts if len(texts) > 1 else texts[0]


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keyword arguments that are not among the known, with the nearest that is."""
    known = set(known)
    faults = []
    for name in given:
        if name in known:
            continue
        owner = next((owner for owner, names in OWNERS.items() if name in names), None)
        meant = None if owner else nearest(name, known)
        words = f"is an option of {owner} only" if owner else "unknown option"
        faults.append(f"{name}: {words}" + (f"; did you mean {meant}?" if meant else ""))
    if faults:
        raise JobError(*faults)


def _as_keyword(fault: str) -> str:
    """`--in-flight: ...` as Python's callers write it."""
    names = {option.flag: option.name for option in OPTIONS}
    return re.sub(r"^--[a-z-]+(?=[:.\[ ])", lambda found: names.get(found[0], found[0]), fault)


def _plain(name: str, value: Any) -> Any:
    if name == "answer":
        return answer_schema(value)
    if name == "prompt" and not isinstance(value, str):
        return [dict(turn) for turn in value]
    return _bare(value)


def _bare(value: Any) -> Any:
    """Mappings, sequences and paths as a job file has them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _bare(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(part) for part in value]
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


def chosen_on_error(options: Mapping[str, Any]) -> str | None:
    """`raise`, `return` or None; raises JobError for anything else."""
    choice: str | None = options.get("on_error")
    check_choice("on_error", choice, "on_error")
    return choice
