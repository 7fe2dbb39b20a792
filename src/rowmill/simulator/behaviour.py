"""All settings of the simulator, and what it answers to one request; knows no sockets, time is passed in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rowmill.simulator.script import Script, Step, as_script, step_from

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

_TOKEN = re.compile(r"\[\[([^\]\s=]+)((?:\s+[a-z:_-]+=[^\]\s]+)*)\]\]")
_OK = Step()


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that an answer takes: `fixed`, `uniform` (a to b) or `lognormal` (median, sigma)."""

    shape: str = "fixed"
    a_s: float = 0.0
    b: float = 0.0

    @staticmethod
    def parse(text: str) -> Latency:
        """`0.5`, `0.1-0.9` or `lognormal:0.5,0.6`; raises ValueError."""
        if text.startswith("lognormal:"):
            median_s, sigma = text.removeprefix("lognormal:").split(",")
            return Latency("lognormal", float(median_s), float(sigma))
        if "-" in text:
            low_s, high_s = text.split("-")
            return Latency("uniform", float(low_s), float(high_s))
        return Latency("fixed", float(text))

    def draw(self, random: Random) -> float:
        """One latency in seconds."""
        if self.shape == "fixed":
            return self.a_s
        if self.shape == "uniform":
            return random.uniform(self.a_s, self.b)
        return self.a_s * random.lognormvariate(0.0, self.b)


class Outage(NamedTuple):
    """From `start_s` to `end_s` after the first request the server is out.

    `kind` is `refuse` (connections are refused, open ones reset) or a step's text such as `502`.
    """

    start_s: float
    end_s: float
    kind: str = "refuse"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """All settings.  Texts stand for `Latency`, steps and scripts; they are parsed once, here.

    `slots` answers are made at a time, the rest queues in order of arrival.  `rpm` and the three token limits
    a minute hold over every window of `window_s` (a window of 6 s admits a tenth).  `dialect` of the limit
    headers: openai, anthropic, groq or none.  `retry_after`: seconds, fraction, ms, date or none.
    `faults` maps a step's text to its share of requests.  `scripts` maps a row's token (`*`: every other row)
    to its replies.  `answer` is the text, `{token}` in it stands for the row's token.  `cached_share` of the
    input tokens is reported as cached.  `models` and `key` refuse others with 404 and 401, `context_tokens`
    with 400.
    `log` keeps (seconds, token, what was answered) of every request.
    """

    latency: Latency | str = Latency()
    slots: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    input_tpm: int | None = None
    output_tpm: int | None = None
    window_s: float = 60.0
    dialect: str = "openai"
    retry_after: str = "seconds"
    faults: Mapping[str, float] = field(default_factory=dict)
    outages: Sequence[Outage] = ()
    scripts: Mapping[str, str | Step | Sequence[Step] | Script] = field(default_factory=dict)
    answer: str = "{token}"
    output_tokens: int = 8
    cached_share: float = 0.0
    models: Sequence[str] | None = None
    key: str | None = None
    context_tokens: int | None = None
    drip_s: float = 5.0
    seed: int = 0
    log: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.latency, str):
            object.__setattr__(self, "latency", Latency.parse(self.latency))
        scripts = {token: as_script(script) for token, script in self.scripts.items()}
        object.__setattr__(self, "scripts", MappingProxyType(scripts))
        if self.dialect not in {"openai", "anthropic", "groq", "none"}:
            raise ValueError(f"dialect {self.dialect!r} is none of openai, anthropic, groq, none")
        if self.retry_after not in {"seconds", "fraction", "ms", "date", "none"}:
            raise ValueError(f"retry_after {self.retry_after!r} is none of seconds, fraction, ms, date, none")
        for text in (*self.faults, *(outage.kind for outage in self.outages if outage.kind != "refuse")):
            Step.parse(text)
        if sum(self.faults.values()) > 1.0:
            raise ValueError("the shares of faults add up to more than 1")


class ReadRequest(NamedTuple):
    """One request, read.  `override` is what the row itself asked for.

    `shape` is the API, `parts` how many texts it is asked about at once.
    """

    token: str
    override: Step | None
    model: str
    input_tokens: int
    max_tokens: int | None
    schema: bytes | None
    wants_json: bool
    shape: str = "chat"
    parts: int = 1


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[dict[str, object]] | None = None


class _JsonSchema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"{}")


class _ResponseFormat(msgspec.Struct):
    type: str = "text"
    json_schema: _JsonSchema | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: _ResponseFormat | None = None


_BODIES = msgspec.json.Decoder(_Body)


def read_request(body: bytes) -> ReadRequest:
    """Reads a chat-completions request; raises ValueError (msgspec's errors are ones) when it is not one."""
    read = _BODIES.decode(body)
    last_text = ""
    length = 0
    for message in read.messages:
        text = _text_of(message.content)
        length += len(text)
        if message.role == "user" and ("[[" in text or not last_text):
            last_text = text  # a repair's own question names no row
    token, override = token_of(last_text)
    wanted = read.response_format
    schema = bytes(wanted.json_schema.schema) if wanted and wanted.json_schema else None
    return ReadRequest(
        token=token,
        override=override,
        model=read.model,
        input_tokens=max(1, length // 4),
        max_tokens=read.max_tokens or read.max_completion_tokens,
        schema=schema,
        wants_json=wanted is not None and wanted.type != "text",
    )


def _text_of(content: str | list[dict[str, object]] | None) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def token_of(text: str) -> tuple[str, Step | None]:
    """The row's token in a text, `[[token]]`, and what the row asks for."""
    found = _TOKEN.search(text)
    if found is None:
        return "", None
    token, tail = found.groups()
    if not tail:
        return token, None
    options = dict(word.split("=", 1) for word in tail.split())
    return token, step_from(options.pop("fault", "ok"), options)


def plan(behaviour: Behaviour, request: ReadRequest, number: int, random: Random) -> Step:
    """What to answer to the row's request `number` (0-based), limits and outages apart."""
    if request.override is not None:
        return request.override
    if behaviour.scripts:
        script = behaviour.scripts.get(request.token) or behaviour.scripts.get("*")
        step = script.at(number) if isinstance(script, Script) else None
        if step is not None:
            return step
    if behaviour.models is not None and request.model not in behaviour.models:
        message = f"The model `{request.model}` does not exist."
        return step_from("error", {"status": "404", "code": "model_not_found", "message": message})
    if behaviour.context_tokens is not None and request.input_tokens > behaviour.context_tokens:
        message = f"This model's maximum context length is {behaviour.context_tokens} tokens."
        return step_from("error", {"status": "400", "code": "context_length_exceeded", "message": message})
    return _drawn_fault(behaviour, random) if behaviour.faults else _OK


def _drawn_fault(behaviour: Behaviour, random: Random) -> Step:
    drawn = random.random()
    for text, share in behaviour.faults.items():
        drawn -= share
        if drawn < 0:
            return Step.parse(text)
    return _OK
