"""Speaks to a server of no known kind: a body made from a template, an answer found by its path.

Must not know rows, lanes or how templates are compiled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowmill.core.replies import failures
from rowmill.core.replies.usage import as_count, judged
from rowmill.core.requests.column_names import check_names
from rowmill.core.requests.expressions import compile_value
from rowmill.core.requests.prompts import TemplateFault
from rowmill.errors import FailureKind, JobError
from rowmill.ports import AnswerReader, Transport
from rowmill.providers.asking import instructed, instruction
from rowmill.providers.credentials import Credentials
from rowmill.providers.post import Post
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import Failure, Message, RawReply, Reply, Request, Row, Usage

NAMES = ("prompt", "system", "user", "messages", "model", "params")
DEFAULT_BODY: Mapping[str, object] = {"prompt": "{{ prompt }}"}

_encode = msgspec.json.Encoder(decimal_format="number").encode

_WHOLE = re.compile(r"\{\{\s*(\w+)(?:\.(\w+))?\s*\}\}")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[\"([^\"]+)\"\]")

Path = tuple[str | int, ...]
Make = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class HttpShape:
    """What a server takes and where its answer stands.

    `body` is JSON whose texts are templates over `prompt` (all messages as one text), `system`, `user` (the last
    user message), `messages`, `model` and `params`; a text that is one name alone gives its value, not its text.
    Where `body` does not use `params`, they are added to it.  Paths are like `output.text`, `data[0].text`, or
    None; without `answer` the reply's whole text is the answer.
    """

    body: Mapping[str, object] = field(default_factory=lambda: DEFAULT_BODY)
    answer: str | None = None
    reasoning: str | None = None
    finish: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None


class HttpProvider:
    """One server of its own kind.  Raises JobError for a body or a path that is not valid.

    A schema is asked for in words.  The reply's statuses and error bodies count as everywhere.  The transport
    stays its owner's: `close` does not close it.
    """

    def __init__(
        self,
        transport: Transport,
        endpoint: ResolvedEndpoint,
        credentials: Credentials,
        schema: AnswerReader | None = None,
        *,
        shape: HttpShape | None = None,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self._post = Post(transport, endpoint, credentials)
        self._unix_time = unix_time
        self._shape = shape or HttpShape()
        self._words = None if schema is None else instruction(schema)
        self._make = _maker(self._shape.body, "body")
        self._adds_params = not _uses_params(self._shape.body)
        self._paths = {
            name: parse_path(getattr(self._shape, name), name)
            for name in ("answer", "reasoning", "finish", "input_tokens", "output_tokens")
        }

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        """See `ports.Provider`.  A body that cannot be rendered for this row is a TEMPLATE failure."""
        try:
            body = self.body(request)
        except TemplateFault as fault:
            return Failure(FailureKind.TEMPLATE, f"the endpoint's body: {fault}")
        return await self._post.send(body, timeout_s)

    def body(self, request: Request) -> bytes:
        """The request's body."""
        messages = request.messages if self._words is None else instructed(request.messages, self._words)
        values = {
            "prompt": as_one_text(messages),
            "system": "\n\n".join(message.content for message in messages if message.role == "system"),
            "user": next((message.content for message in reversed(messages) if message.role == "user"), ""),
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "model": request.model or self.endpoint.model,
            "params": request.params,
        }
        body = self._make(values)
        if self._adds_params and isinstance(body, dict):
            body = {**body, **request.params}
        return _encode(body)

    def read(self, raw: RawReply) -> Reply | Failure:
        """Reads a raw reply; pure but for the clock that dates in headers are held against."""
        failure = failures.classify(raw.status, raw.headers, raw.body, now=self._unix_time())
        if failure is not None:
            return self._post.credentials.explained(failure)
        try:
            if self._paths["answer"] is None:
                return Reply(raw.body.decode(), request_id=raw.headers.get("x-request-id"))
            read = msgspec.json.decode(raw.body)
        except (ValueError, RecursionError) as fault:
            return failures.unreadable(f"the reply is not JSON: {fault}", raw.body, raw.status)
        answer, is_there = self._at(read, "answer")
        if not is_there:
            words = f"the reply has nothing at {self._shape.answer} (the path of the answer)"
            return failures.unreadable(words, raw.body, raw.status)
        return Reply(
            text=(text := _as_text(answer)),
            finish_reason=_as_text(self._at(read, "finish")[0]),
            reasoning=_as_text(self._at(read, "reasoning")[0]),
            usage=judged(
                Usage(self._tokens(read, "input_tokens"), self._tokens(read, "output_tokens")), has_text=bool(text)
            ),
            request_id=raw.headers.get("x-request-id"),
        )

    def reload_credentials(self) -> bool:
        """Reads the key again; True when it changed.  Raises JobError when it is gone."""
        return self._post.credentials.reload()

    async def close(self) -> None:
        """Nothing to close: the transport is its owner's."""

    def _at(self, read: Any, name: str) -> tuple[Any, bool]:
        path = self._paths[name]
        return (None, False) if path is None else find(read, path)

    def _tokens(self, read: Any, name: str) -> int | None:
        value, _ = self._at(read, name)
        return as_count(value)


def as_one_text(messages: Sequence[Message]) -> str:
    """All messages as one text; turns are marked only where there are examples."""
    if not any(message.role == "assistant" for message in messages):
        return "\n\n".join(message.content for message in messages)
    marks = {"system": "", "user": "User: ", "assistant": "Assistant: "}
    turns = [f"{marks.get(message.role, '')}{message.content}" for message in messages]
    return "\n\n".join([*turns, "Assistant:"])


# --- paths ------------------------------------------------------------------------------------------------


def parse_path(text: str | None, what: str = "path") -> Path | None:
    """`output.text`, `data[0].text`, `$.a["odd name"]` -> keys and indices.  Raises JobError naming `what`."""
    if text is None:
        return None
    rest = text.strip().removeprefix("$")
    steps: list[str | int] = []
    while rest:
        step = _STEP.match(rest)
        if step is None:
            break
        steps.append(int(step[2]) if step[2] is not None else step[1] or step[3])
        rest = rest[step.end() :]
    if rest or not steps:
        raise JobError(f"{what}: {text!r} is not a path like output.text or data[0].text")
    return tuple(steps)


def find(value: Any, path: Path) -> tuple[Any, bool]:
    """(what stands at the path, whether there is anything)."""
    for step in path:
        if not isinstance(value, dict | list):
            return None, False
        try:
            value = value[step]  # type: ignore[index]  # a wrong kind of step raises as a missing one does
        except (KeyError, IndexError, TypeError):
            return None, False
    return value, True


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


# --- the body ---------------------------------------------------------------------------------------------


def _maker(value: object, path: str) -> Make:
    """A function that gives the value with its templates filled in."""
    if isinstance(value, str):
        return _text_maker(value, path)
    if isinstance(value, Mapping):
        parts = {str(name): _maker(part, f"{path}.{name}") for name, part in value.items()}
        return lambda values: {name: make(values) for name, make in parts.items()}
    if isinstance(value, list | tuple):
        makes = [_maker(part, f"{path}[{at}]") for at, part in enumerate(value)]
        return lambda values: [make(values) for make in makes]
    return lambda values: value


def _text_maker(text: str, path: str) -> Make:
    if "{{" not in text and "{%" not in text:
        return lambda values: text
    whole = _WHOLE.fullmatch(text.strip())
    if whole is not None and whole[1] in NAMES:
        name, key = whole[1], whole[2]
        if key is not None and name == "params":  # one that is not stated is null, where elsewhere it is a fault
            return lambda values: values[name].get(key)
    try:
        make, used = compile_value(text)
        check_names(used or (), NAMES, "the body")
    except JobError as error:
        raise JobError(*(f"{path}: {fault}" for fault in error.faults)) from None
    return lambda values: make(Row(0, values))


def _uses_params(value: object) -> bool:
    if isinstance(value, str):
        return "{" in value and re.search(r"\bparams\b", value) is not None
    if isinstance(value, Mapping):
        return any(_uses_params(part) for part in value.values())
    return isinstance(value, list | tuple) and any(_uses_params(part) for part in value)
