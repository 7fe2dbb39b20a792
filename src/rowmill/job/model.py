"""`Job` and its parts: what a valid job is; it does not know where the values were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rowmill.core.names.databases import DatabaseUrl, Mode, Target
from rowmill.core.names.files import SEVERAL, default_run_file, is_remote, leaf
from rowmill.core.names.formats import COMPRESSED, READABLE
from rowmill.core.replies.answers import AnswerSchema, Fallback, compile_fallback, compile_schema
from rowmill.job import answer_checks, checks
from rowmill.job.checks import in_range
from rowmill.job.option_table import default
from rowmill.job.parts import HttpSpec, Part, PriceTag, Text
from rowmill.records import Message

Template = Annotated[str, AfterValidator(checks.template)]
FUNCTION_PROMPT = "(a function)"  # what stands in the job of a run that calls a function

Params = Annotated[dict[str, JsonValue], AfterValidator(checks.params)]


class Turn(Part):
    """One message of the prompt; `content` is a template."""

    role: Literal["system", "user", "assistant"]
    content: Template


def asks_something(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Refuses messages among which none asks, or a system message that does not stand first."""
    if not any(turn.role == "user" for turn in turns):
        raise PydanticCustomError("turns", "has no user message")
    if any(turn.role == "system" for turn in turns[1:]):
        raise PydanticCustomError("turns", "a system message must stand first, and there may be only one")
    return turns


class AnswerSpec(Part):
    """The shape of an answer, and what becomes of one that does not fit.

    `schema` is a JSON Schema, the shorthand `{field: kind}`, or the shorthand as text; without one the answer is
    text.  `repair` is how often an invalid answer is asked for again; `fallback` stands in for rows that end as
    `fallback_for` says; `expect` names for answer fields the columns with the right values.
    """

    schema_: Annotated[dict[str, JsonValue] | str | None, BeforeValidator(answer_checks.answer_schema)] = Field(
        default=None, alias="schema"
    )
    repair: Annotated[int, in_range("answer.repair")] = default("answer.repair")
    fallback_for: Annotated[tuple[str, ...], BeforeValidator(answer_checks.fallback_for)] = default(
        "answer.fallback_for"
    )
    fallback: JsonValue = None
    expect: Annotated[dict[str, Text], BeforeValidator(answer_checks.expect)] = Field(default={})

    @property
    def compiled(self) -> AnswerSchema | None:
        """The schema, compiled anew at each call; None where the answer is text."""
        return None if self.schema_ is None else compile_schema(self.schema_)

    @property
    def compiled_fallback(self) -> Fallback | None:
        """The fallback as answer columns, None where there is none."""
        if self.fallback is None:
            return None
        return compile_fallback(self.fallback, self.compiled, self.fallback_for)

    @field_validator("fallback")
    @classmethod
    def _stands_in(cls, fallback: JsonValue, info: ValidationInfo) -> JsonValue:
        if fallback is not None and "schema_" in info.data:
            answer_checks.fallback(fallback, info.data["schema_"])
        return fallback

    @field_validator("expect")
    @classmethod
    def _expects_fields(cls, expect: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if "schema_" in info.data:
            answer_checks.expected_fields(expect, info.data["schema_"])
        return expect

    @model_validator(mode="after")
    def _falls_back(self) -> Self:
        if self.fallback_for != default("answer.fallback_for") and self.fallback is None:
            raise PydanticCustomError("fallback", "fallback_for needs a fallback")
        return self


class RetrySpec(Part):
    """How often and how patiently a row is tried; back-off doubles from `backoff_s`, with full jitter."""

    attempts: Annotated[int, in_range("retry.attempts")] = default("retry.attempts")
    backoff_s: Annotated[float, in_range("retry.backoff_s")] = default("retry.backoff_s")
    max_backoff_s: Annotated[float, in_range("retry.max_backoff_s")] = default("retry.max_backoff_s")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.max_backoff_s < self.backoff_s and "max_backoff_s" in self.model_fields_set:
            raise PydanticCustomError("order", "max_backoff_s must not be less than backoff_s")
        return self


class EndpointSpec(Part):
    """One endpoint: a model behind a URL.  Holds names of variables and files, never a key.

    It is meant for the next `take` rows or those for which `when` holds, else for any that are left; `pin` keeps
    them there whatever happens, `cascade` names the statuses with which they go on to the next endpoint.  Endpoints
    with one `quota` share their limits.  `prompt` stands in for the job's; `parse` makes a value of a reply's text.
    """

    model: Annotated[str, AfterValidator(checks.model_name)]
    name: Text | None = None
    url: Annotated[str, AfterValidator(checks.url)] | None = None
    key_env: Annotated[str, AfterValidator(checks.variable)] | None = None
    key_file: Text | None = None
    ca_file: Text | None = None
    headers: Annotated[dict[str, str], BeforeValidator(checks.headers)] = Field(default={})
    in_flight: Annotated[int | Literal["auto"], BeforeValidator(checks.in_flight)] = default("endpoints[].in_flight")
    rpm: Annotated[float, in_range("endpoints[].rpm")] | None = None
    tpm: Annotated[float, in_range("endpoints[].tpm")] | None = None
    input_tpm: Annotated[float, in_range("endpoints[].input_tpm")] | None = None
    output_tpm: Annotated[float, in_range("endpoints[].output_tpm")] | None = None
    headroom: Annotated[float, in_range("endpoints[].headroom")] = default("endpoints[].headroom")
    params: Params = Field(default={})
    price: PriceTag | None = None
    http: HttpSpec | None = None
    take: Annotated[int, in_range("endpoints[].take")] | None = None
    when: Annotated[str, AfterValidator(checks.expression)] | None = None
    pin: bool = default("endpoints[].pin")
    quota: Text | None = None
    cascade: Annotated[tuple[str, ...], BeforeValidator(checks.cascade)] = ()
    prompt: Annotated[tuple[Turn, ...], BeforeValidator(checks.turns), AfterValidator(asks_something)] | None = None
    parse: Annotated[str, AfterValidator(checks.function_name)] | None = None

    @property
    def fixed_in_flight(self) -> int | None:
        """How many requests may be in flight at once; None where the limit adapts itself."""
        return None if self.in_flight == "auto" else self.in_flight

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key_env and self.key_file:
            raise PydanticCustomError("keys", "has both key_env and key_file; keep one")
        if self.take is not None and self.when is not None:
            raise PydanticCustomError("route", "has both take and when; keep one")
        if self.http is not None and not self.model.startswith("http/"):
            raise PydanticCustomError("http", "`http` is for a model named http/NAME; name it so, or take `http` away")
        return self


class Job(Part):
    """All that the user decides; frozen, JSON-serialisable and free of secrets.

    Without a prompt the source is a batch file, whose lines say what is asked (see `bodies`).  Times are in
    seconds; `sample` rows are drawn with `seed`; `limit` counts rows after `where` and `sample`.
    """

    source: Annotated[str, BeforeValidator(checks.several_sources), AfterValidator(checks.source)]
    prompt: Annotated[tuple[Turn, ...], BeforeValidator(checks.turns)] = Field(default=(), validate_default=True)
    system: Template | None = None
    answer: AnswerSpec | None = None
    endpoints: Annotated[tuple[EndpointSpec, ...], BeforeValidator(checks.endpoints)]
    params: Annotated[dict[str, JsonValue], AfterValidator(checks.job_params)] = Field(default={})
    budget_usd: Annotated[float, in_range("budget_usd")] | None = None
    retry: RetrySpec = RetrySpec()
    timeout_s: Annotated[float, in_range("timeout_s")] = default("timeout_s")
    connect_timeout_s: Annotated[float, in_range("connect_timeout_s")] = default("connect_timeout_s")
    row_timeout_s: Annotated[float, in_range("row_timeout_s")] = default("row_timeout_s")
    max_duration_s: Annotated[float, in_range("max_duration_s")] | None = None
    max_outage_s: Annotated[float, in_range("max_outage_s")] = default("max_outage_s")
    output: Annotated[str, AfterValidator(checks.output)] = ""
    format: Literal["jsonl", "csv", "tsv", "parquet", "batch", "run-batch"] | None = None
    query: Text | None = Field(default=None, validate_default=True)
    table: Annotated[str, AfterValidator(checks.table)] | None = Field(default=None, validate_default=True)
    mode: Mode = default("mode")
    id: Text | None = Field(default=None, validate_default=True)
    run_file: Annotated[str, AfterValidator(checks.run_file)] | None = None
    split_rows: Annotated[int, in_range("split_rows")] | None = None
    dedupe: bool = default("dedupe")
    static_prompt: bool = default("static_prompt")
    pilot: Annotated[int, in_range("pilot")] | None = None
    limit: Annotated[int, in_range("limit")] | None = None
    sample: Annotated[int, in_range("sample")] | None = None
    seed: Annotated[int, in_range("seed")] = default("seed")
    where: Annotated[str, AfterValidator(checks.expression)] | None = None
    empty: Literal["send", "skip", "fail"] = default("empty")
    max_failure_rate: Annotated[float, in_range("max_failure_rate")] | None = None
    encoding: Annotated[str, AfterValidator(checks.encoding)] | None = None
    delimiter: Annotated[str, AfterValidator(checks.delimiter)] | None = None
    sheet: Annotated[Text, BeforeValidator(checks.sheet)] | None = None
    answer_prefix: str = default("answer_prefix")
    meta_prefix: str = default("meta_prefix")
    escape_formulas: bool = default("escape_formulas")
    _files: tuple[tuple[str, str], ...] = PrivateAttr(())

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """The files that the job was read from: what each is, and its path.  No part of the job's JSON."""
        return self._files

    def read_from(self, files: Sequence[tuple[str, str]]) -> Self:
        """The same job, knowing the files it was read from."""
        job = self.model_copy()
        job._files = tuple(files)
        return job

    @property
    def schema_spec(self) -> Mapping[str, JsonValue] | str | None:
        """The answer's schema as the user wrote it, None where the answer is text."""
        return None if self.answer is None else self.answer.schema_

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt's templates in order, the system message first."""
        turns = tuple(Message(turn.role, turn.content) for turn in self.prompt)
        return turns if self.system is None else (Message("system", self.system), *turns)

    def messages_of(self, endpoint: EndpointSpec) -> tuple[Message, ...]:
        """The templates that an endpoint is asked with: its own or the job's; the job's `system` holds for both."""
        if endpoint.prompt is None:
            return self.messages
        turns = tuple(Message(turn.role, turn.content) for turn in endpoint.prompt)
        return turns if self.system is None or turns[0].role == "system" else (Message("system", self.system), *turns)

    @property
    def calls_function(self) -> bool:
        """Whether the rows were given to a function, which a run file does not hold."""
        return [turn.content for turn in self.prompt] == [FUNCTION_PROMPT]

    @property
    def is_batch(self) -> bool:
        """Whether the rows are requests themselves."""
        return not self.prompt

    @property
    def target(self) -> Target | None:
        """The table that the output goes to; None where it is a file."""
        if not isinstance(self.output, DatabaseUrl) or self.table is None:
            return None
        return Target(self.output, self.table, self.mode, self.id)

    @property
    def stem(self) -> str:
        """What the names of the run file and of the file of failures begin with: the output, where it is a file."""
        target = self.target
        if target is None:
            return self.output
        return target.stem() if self.run_file is None else self.run_file.removesuffix(".rowmill")

    @property
    def run_file_path(self) -> str:
        """Where the run file is: as the user named it, else beside the output."""
        if self.run_file is not None:
            return self.run_file
        return default_run_file(self.output) if self.target is None else f"{self.stem}.rowmill"

    @field_validator("format", "query", "table", "mode", "id", "split_rows", "encoding", "delimiter", "sheet")
    @classmethod
    def _fits_source_and_output(cls, value: str | None, info: ValidationInfo) -> str | None:
        checks.database_key(info.field_name or "", value, info.data)
        return value

    @field_validator("endpoints")
    @classmethod
    def _cascades_on(cls, endpoints: tuple[EndpointSpec, ...]) -> tuple[EndpointSpec, ...]:
        names = endpoint_names(endpoints)
        for name in (endpoint.name for endpoint in endpoints):
            if name is not None and names.count(name) > 1:
                raise PydanticCustomError("names", "two endpoints are called {name}; name them apart", {"name": name})
        if endpoints and endpoints[-1].cascade:
            raise PydanticCustomError("cascade", "the last endpoint has a cascade, and there is none after it to go to")
        return endpoints

    @field_validator("prompt")
    @classmethod
    def _asks_something(cls, turns: tuple[Turn, ...], info: ValidationInfo) -> tuple[Turn, ...]:
        if not turns:
            if not checks.may_be_batch(info.data.get("source", "")):
                raise PydanticCustomError("missing", "missing")
            return turns
        return asks_something(turns)

    @field_validator("system")
    @classmethod
    def _one_system(cls, system: str | None, info: ValidationInfo) -> str | None:
        if system is not None and any(turn.role == "system" for turn in info.data.get("prompt", ())):
            raise PydanticCustomError("system", "the prompt has a system message already; keep one of the two")
        return system

    @model_validator(mode="after")
    def _names_its_output(self) -> Self:
        if not self.output:
            object.__setattr__(self, "output", default_output(self.source))
        if self.schema_spec is not None and "response_format" in self.params:
            raise PydanticCustomError("clash", "params.response_format and answer.schema exclude each other")
        return self

    def to_json(self) -> bytes:
        """The job as JSON, as the run file keeps it."""
        return self.model_dump_json(by_alias=True, exclude={"prompt"} if self.is_batch else None).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Job:
        """The job that `to_json` wrote."""
        return cls.model_validate_json(text)


def default_output(source: str) -> str:
    """Where the output goes when the user does not say: beside the source, with `.out.jsonl`.

    Beside a source elsewhere nothing is written: then it goes into the current folder.
    """
    stem = leaf(source) if is_remote(source) else source
    is_one_file = bool(stem) and source != "-" and not any(sign in stem for sign in (*"*?[", SEVERAL))
    if isinstance(source, DatabaseUrl) or not is_one_file:
        raise PydanticCustomError("output", "missing; name the output with -o/--output")
    for endings in (COMPRESSED, READABLE):
        stem = next((stem[: -len(ending)] for ending in endings if stem.lower().endswith(ending)), stem)
    return f"{stem}.out.jsonl"


def endpoint_names(endpoints: Sequence[EndpointSpec]) -> list[str]:
    """What each endpoint is called in output and figures: its name, else its model; of one model also the host, or a
    number.
    """
    models = ["" if endpoint.name else endpoint.model for endpoint in endpoints]
    hosts = [("" if e.name else e.model, urlsplit(e.url or "").netloc.rpartition("@")[2]) for e in endpoints]
    names = []
    for index, (model, host) in enumerate(hosts):
        if name := endpoints[index].name:
            names.append(name)
        elif models.count(model) == 1:
            names.append(model)
        elif host and hosts.count((model, host)) == 1:
            names.append(f"{model}@{host}")
        else:
            names.append(f"{model} #{models[: index + 1].count(model)}")
    return names


def effective_params(job: Job, endpoint: EndpointSpec) -> Mapping[str, JsonValue]:
    """What is sent to `endpoint` besides the messages: its own parameters over the job's."""
    return {**job.params, **endpoint.params}


__all__: Sequence[str] = (
    "AnswerSpec",
    "EndpointSpec",
    "HttpSpec",
    "Job",
    "PriceTag",
    "RetrySpec",
    "Turn",
    "default_output",
    "effective_params",
    "endpoint_names",
)
