"""`Job` and its parts: what a valid job is; it does not know where the values were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rowmill.addresses import default_run_file, is_remote, leaf
from rowmill.answers import AnswerSchema, Fallback, compile_fallback, compile_schema
from rowmill.job import checks
from rowmill.job.checks import between
from rowmill.prices import PriceSpec
from rowmill.records import Message

Count = Annotated[int, between(1, 1_000_000_000)]
Seconds = Annotated[float, between(0.001, 30 * 86_400.0)]
Pause = Annotated[float, between(0.0, 86_400.0)]
PerMinute = Annotated[float, between(1.0, 1e12)]
Money = Annotated[float, between(0.0, 1_000_000.0)]
Text = Annotated[str, AfterValidator(checks.not_blank)]
Template = Annotated[str, AfterValidator(checks.template)]
Params = Annotated[dict[str, JsonValue], AfterValidator(checks.params)]


class _Part(BaseModel):
    """Frozen and strict; a key without a value (`timeout_s: null`) means its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values


class Turn(_Part):
    """One message of the prompt; `content` is a template."""

    role: Literal["system", "user", "assistant"]
    content: Template


class AnswerSpec(_Part):
    """The shape of an answer, and what becomes of one that does not fit.

    `schema` is a JSON Schema, the shorthand `{field: kind}`, or the shorthand as text; without one the answer is
    text.  `repair` is how often an invalid answer is asked for again; `fallback` stands in for rows that end as
    `fallback_for` says; `expect` names for answer fields the columns with the right values.
    """

    schema_: Annotated[dict[str, JsonValue] | str | None, BeforeValidator(checks.answer_schema)] = Field(
        default=None, alias="schema"
    )
    repair: Annotated[int, between(0, 10)] = 0
    fallback_for: Annotated[tuple[str, ...], BeforeValidator(checks.fallback_for)] = ("invalid",)
    fallback: JsonValue = None
    expect: Annotated[dict[str, Text], BeforeValidator(checks.expect)] = {}

    @property
    def compiled(self) -> AnswerSchema | None:
        """The schema, compiled anew at each call; None where the answer is text."""
        return None if self.schema_ is None else compile_schema(self.schema_)

    @property
    def stand_in(self) -> Fallback | None:
        """The fallback as answer columns, None where there is none."""
        if self.fallback is None:
            return None
        return compile_fallback(self.fallback, self.compiled, self.fallback_for)

    @field_validator("fallback")
    @classmethod
    def _stands_in(cls, fallback: JsonValue, info: ValidationInfo) -> JsonValue:
        if fallback is not None and "schema_" in info.data:
            checks.fallback(fallback, info.data["schema_"])
        return fallback

    @field_validator("expect")
    @classmethod
    def _expects_fields(cls, expect: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if "schema_" in info.data:
            checks.expected_fields(expect, info.data["schema_"])
        return expect

    @model_validator(mode="after")
    def _falls_back(self) -> Self:
        if self.fallback_for != ("invalid",) and self.fallback is None:
            raise PydanticCustomError("fallback", "fallback_for needs a fallback")
        return self


class RetrySpec(_Part):
    """How often and how patiently a row is tried; back-off doubles from `backoff_s`, with full jitter."""

    attempts: Annotated[int, between(1, 100)] = 4
    backoff_s: Pause = 1.0
    max_backoff_s: Pause = 60.0

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.max_backoff_s < self.backoff_s and "max_backoff_s" in self.model_fields_set:
            raise PydanticCustomError("order", "max_backoff_s must not be less than backoff_s")
        return self


class PriceTag(_Part):
    """What tokens cost, in USD for one `unit` of them; see `prices.PriceSpec`."""

    input: Money
    output: Money
    cached_input: Money | None = None
    cache_write: Money | None = None
    reasoning: Money | None = None
    batch: Annotated[float, between(0.0, 1.0)] | None = None
    unit: Literal["1M", "1K", "token"] = "1M"

    @property
    def spec(self) -> PriceSpec:
        """The price as the rules know it."""
        return PriceSpec(**self.model_dump())


class HttpSpec(_Part):
    """What a server of its own kind takes, and where its answer stands; see `providers.http.HttpShape`."""

    body: dict[str, JsonValue] | None = None
    answer: Text | None = None
    reasoning: Text | None = None
    finish: Text | None = None
    input_tokens: Text | None = None
    output_tokens: Text | None = None


class EndpointSpec(_Part):
    """One endpoint: a model behind an address.  Holds names of variables and files, never a key."""

    model: Annotated[str, AfterValidator(checks.model_name)]
    url: Annotated[str, AfterValidator(checks.url)] | None = None
    key_env: Annotated[str, AfterValidator(checks.variable)] | None = None
    key_file: Text | None = None
    ca_file: Text | None = None
    headers: Annotated[dict[str, str], BeforeValidator(checks.headers)] = {}
    in_flight: Annotated[int | Literal["auto"], BeforeValidator(checks.in_flight)] = "auto"
    rpm: PerMinute | None = None
    tpm: PerMinute | None = None
    input_tpm: PerMinute | None = None
    output_tpm: PerMinute | None = None
    headroom: Annotated[float, between(0.01, 1.0)] = 0.95
    params: Params = {}
    price: PriceTag | None = None
    http: HttpSpec | None = None

    @property
    def pinned(self) -> int | None:
        """How many requests may be in flight at once; None where the limit adapts itself."""
        return None if self.in_flight == "auto" else self.in_flight

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key_env and self.key_file:
            raise PydanticCustomError("keys", "has both key_env and key_file; keep one")
        if self.http is not None and not self.model.startswith("http/"):
            raise PydanticCustomError("http", "`http` is for a model named http/NAME; name it so, or take `http` away")
        return self


class Job(_Part):
    """All that the user decides; frozen, JSON-serialisable and free of secrets.

    Times are in seconds; `sample` rows are drawn with `seed`; `limit` counts rows after `where` and `sample`.
    """

    source: Annotated[str, AfterValidator(checks.source)]
    prompt: Annotated[tuple[Turn, ...], BeforeValidator(checks.turns)]
    system: Template | None = None
    answer: AnswerSpec | None = None
    endpoints: Annotated[tuple[EndpointSpec, ...], BeforeValidator(checks.one_endpoint)]
    params: Params = {}
    budget_usd: Money | None = None
    retry: RetrySpec = RetrySpec()
    timeout_s: Seconds = 120.0
    connect_timeout_s: Seconds = 10.0
    row_timeout_s: Seconds = 900.0
    max_duration_s: Seconds | None = None
    max_outage_s: Pause = 600.0
    output: Annotated[str, AfterValidator(checks.output)] = ""
    format: Literal["jsonl", "csv", "tsv", "parquet"] | None = None
    run_file: Annotated[str, AfterValidator(checks.run_file)] | None = None
    split_rows: Count | None = None
    dedupe: bool = False
    pilot: Annotated[int, between(2, 1_000_000)] | None = None
    limit: Count | None = None
    sample: Count | None = None
    seed: Annotated[int, between(0, 2**63 - 1)] = 0
    where: Annotated[str, AfterValidator(checks.expression)] | None = None
    empty: Literal["send", "skip", "fail"] = "send"
    max_failure_rate: Annotated[float, between(0.0, 1.0)] | None = None
    encoding: Annotated[str, AfterValidator(checks.encoding)] | None = None
    delimiter: Annotated[str, AfterValidator(checks.delimiter)] | None = None
    sheet: Annotated[Text, BeforeValidator(checks.sheet)] | None = None
    answer_prefix: str = ""
    meta_prefix: str = "_"
    escape_formulas: bool = False

    @property
    def schema_spec(self) -> Mapping[str, JsonValue] | str | None:
        """The answer's schema as the user wrote it, None where the answer is text."""
        return None if self.answer is None else self.answer.schema_

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt's templates in order, the system message first."""
        turns = tuple(Message(turn.role, turn.content) for turn in self.prompt)
        return turns if self.system is None else (Message("system", self.system), *turns)

    @property
    def run_file_path(self) -> str:
        """Where the run file is: as the user named it, else beside the output."""
        return self.run_file or default_run_file(self.output)

    @field_validator("prompt")
    @classmethod
    def _asks_something(cls, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        if not any(turn.role == "user" for turn in turns):
            raise PydanticCustomError("turns", "has no user message")
        if any(turn.role == "system" for turn in turns[1:]):
            raise PydanticCustomError("turns", "a system message must stand first, and there may be only one")
        return turns

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
        return self.model_dump_json(by_alias=True).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Job:
        """The job that `to_json` wrote."""
        return cls.model_validate_json(text)


def default_output(source: str) -> str:
    """Where the output goes when the user does not say: beside the source, with `.out.jsonl`.

    Beside a source elsewhere nothing is written: then it goes into the current folder.
    """
    stem = leaf(source) if is_remote(source) else source
    if source == "-" or not stem or any(sign in stem for sign in "*?["):
        raise PydanticCustomError("output", "missing; name the output with -o/--output")
    for endings in (checks.COMPRESSED, checks.READABLE):
        stem = next((stem[: -len(ending)] for ending in endings if stem.lower().endswith(ending)), stem)
    return f"{stem}.out.jsonl"


def effective_params(job: Job, endpoint: EndpointSpec) -> Mapping[str, JsonValue]:
    """What is sent to `endpoint` besides the messages: its own parameters over the job's."""
    return {**job.params, **endpoint.params}


__all__: Sequence[str] = (
    "AnswerSpec",
    "EndpointSpec",
    "Job",
    "RetrySpec",
    "Turn",
    "default_output",
    "effective_params",
)
