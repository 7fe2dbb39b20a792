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

from rowmill.job import checks
from rowmill.job.checks import between
from rowmill.records import Message

Count = Annotated[int, between(1, 1_000_000_000)]
Seconds = Annotated[float, between(0.001, 30 * 86_400.0)]
Pause = Annotated[float, between(0.0, 86_400.0)]
PerMinute = Annotated[float, between(1.0, 1e12)]
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
    """The shape of an answer: a JSON Schema, the shorthand `{field: kind}`, or the shorthand as text."""

    schema_: Annotated[dict[str, JsonValue] | str, BeforeValidator(checks.answer_schema)] = Field(alias="schema")


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

    @property
    def pinned(self) -> int | None:
        """How many requests may be in flight at once; None where the limit adapts itself."""
        return None if self.in_flight == "auto" else self.in_flight

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key_env and self.key_file:
            raise PydanticCustomError("keys", "has both key_env and key_file; keep one")
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
    retry: RetrySpec = RetrySpec()
    timeout_s: Seconds = 120.0
    connect_timeout_s: Seconds = 10.0
    row_timeout_s: Seconds = 900.0
    max_duration_s: Seconds | None = None
    max_outage_s: Pause = 600.0
    output: Annotated[str, AfterValidator(checks.output)] = ""
    format: Literal["jsonl", "csv", "tsv", "parquet"] | None = None
    run_file: Text | None = None
    limit: Count | None = None
    sample: Count | None = None
    seed: Annotated[int, between(0, 2**63 - 1)] = 0
    where: Annotated[str, AfterValidator(checks.expression)] | None = None
    empty: Literal["send", "skip", "fail"] = "send"
    max_failure_rate: Annotated[float, between(0.0, 1.0)] | None = None
    encoding: Annotated[str, AfterValidator(checks.encoding)] | None = None
    delimiter: Annotated[str, AfterValidator(checks.delimiter)] | None = None
    answer_prefix: str = ""
    meta_prefix: str = "_"
    escape_formulas: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt's templates in order, the system message first."""
        turns = tuple(Message(turn.role, turn.content) for turn in self.prompt)
        return turns if self.system is None else (Message("system", self.system), *turns)

    @property
    def run_file_path(self) -> str:
        """Where the run file is: as the user named it, else beside the output."""
        return self.run_file or f"{self.output}.rowmill"

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
        if self.answer is not None and "response_format" in self.params:
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
    """Where the output goes when the user does not say: beside the source, with `.out.jsonl`."""
    if source == "-" or "://" in source or any(sign in source for sign in "*?["):
        raise PydanticCustomError("output", "missing; name the output with -o/--output")
    stem = source
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
