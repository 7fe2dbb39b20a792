"""Chat completions: a request into a body, a raw reply into a reply; must not know HTTP faults or retries."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from rowmill.core.replies.failures import classify, unreadable
from rowmill.core.replies.usage import MOST_TOKENS, as_count, judged, judged_counts
from rowmill.providers.asking import instructed, instruction
from rowmill.providers.credentials import Credentials
from rowmill.providers.post import Post
from rowmill.records import NO_USAGE, Failure, RawReply, Reply, Request, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from rowmill.ports import AnswerReader, Transport
    from rowmill.providers.presets import ResolvedEndpoint

OK = 200

_encode = msgspec.json.encode
_NOTE = b"rowmill_max_tokens"


class OpenAIProvider:
    """Chat completions of one model at one endpoint.

    With a schema a JSON answer is asked for in the way the endpoint supports.  The transport stays its owner's:
    `close` does not close it.
    """

    def __init__(
        self,
        transport: Transport,
        endpoint: ResolvedEndpoint,
        credentials: Credentials,
        schema: AnswerReader | None = None,
        *,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self._post = Post(transport, endpoint, credentials)
        self._unix_time = unix_time
        self._format, self._instruction = _answer_format(endpoint.structured, schema)
        self._head = _head(endpoint.model)
        self._tail = b""
        self._tail_params: Mapping[str, object] | None = None

    def send(self, request: Request, timeout_s: float) -> Coroutine[Any, Any, RawReply | Failure]:
        """See `ports.Provider`."""
        if self.endpoint.doubts_length:
            return self._send_noted(request, timeout_s)
        return self._post.send(self.body(request), timeout_s)

    def body(self, request: Request) -> bytes:
        """The bytes that are sent for a request."""
        if request.params is not self._tail_params:
            self._tail = self._encode_tail(request.params)
            self._tail_params = request.params
        messages = request.messages if self._instruction is None else instructed(request.messages, self._instruction)
        head = self._head if request.model is None else _head(request.model)
        return head + _encode(messages) + self._tail

    def read(self, raw: RawReply) -> Reply | Failure:
        """See `ports.Provider`."""
        if raw.status == OK:
            reply = _read_plain(raw)
            if reply is not None:
                return reply
        failure = classify(raw.status, raw.headers, raw.body, now=self._unix_time())
        return _read_odd(raw) if failure is None else self._post.credentials.explained(failure)

    def reload_credentials(self) -> bool:
        """Reads the key again; True when it changed.  Raises JobError when it is gone."""
        return self._post.credentials.reload()

    async def close(self) -> None:
        """Nothing to close: the transport is its owner's."""

    async def _send_noted(self, request: Request, timeout_s: float) -> RawReply | Failure:
        """Notes in the reply how many tokens it might have, so that it can be judged whenever it is read."""
        raw = await self._post.send(self.body(request), timeout_s)
        limit = request.params.get("max_tokens")
        if isinstance(raw, Failure) or raw.status != OK or type(limit) is not int:
            return raw
        body = raw.body.rstrip()
        return raw.replaced(body=b'%b,"%b":%d}' % (body[:-1], _NOTE, limit)) if body.endswith(b"}") else raw

    def _encode_tail(self, params: Mapping[str, object]) -> bytes:
        fields = {name: value for name, value in params.items() if name not in ("model", "messages")}
        if self._format is not None:
            fields.setdefault("response_format", self._format)
        if not fields:
            return b"}"
        return b"," + _encode(fields)[1:]


def _head(model: str) -> bytes:
    return b'{"model":' + _encode(model) + b',"messages":'


def _answer_format(structured: str, schema: AnswerReader | None) -> tuple[dict[str, object] | None, str | None]:
    """(response_format, words for the system message), None where not needed."""
    if schema is None:
        return None, None
    if structured == "json_schema":
        named = {"name": "answer", "strict": schema.strict, "schema": schema.json_schema}
        return {"type": "json_schema", "json_schema": named}, None
    is_object = schema.json_schema.get("type") == "object"
    return ({"type": "json_object"} if structured == "json_object" and is_object else None), instruction(schema)


# --- replies -----------------------------------------------------------------------------------------------

# Only what is needed is decoded.  Most servers agree about the types, so a reply is first read by these; one that does
# not fit, or tells of an error, is read again as it comes.

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] | None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    error: Any = None


class _OfInput(msgspec.Struct):
    cached_tokens: _Tokens | UnsetType = UNSET
    cache_write_tokens: _Tokens = None


class _OfOutput(msgspec.Struct):
    reasoning_tokens: _Tokens = None


class _Told(msgspec.Struct):
    prompt_tokens: _Tokens = None
    completion_tokens: _Tokens = None
    total_tokens: _Tokens = None
    prompt_cache_hit_tokens: _Tokens | UnsetType = UNSET
    cached_tokens: _Tokens = None
    prompt_tokens_details: _OfInput | None = None
    completion_tokens_details: _OfOutput | None = None

    def usage(self, *, has_text: bool) -> Usage:
        of_input, of_output = self.prompt_tokens_details, self.completion_tokens_details
        cached = UNSET if of_input is None else of_input.cached_tokens
        if cached is UNSET:
            cached = self.prompt_cache_hit_tokens
        if cached is UNSET:
            cached = self.cached_tokens
        written = None if of_input is None else of_input.cache_write_tokens
        thought = None if of_output is None else of_output.reasoning_tokens
        asked, said = self.prompt_tokens, self.completion_tokens
        usage = Usage(asked, said, cached, written, thought)
        if (
            asked
            and said
            and self.total_tokens == asked + said
            and (thought or 0) <= said
            and (cached or 0) + (written or 0) <= asked
        ):
            return usage  # most servers' and beyond doubt
        return judged_counts(usage, self.total_tokens, has_text=has_text)


class _Chat(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Told | None = None
    model: str | None = None
    id: str | None = None
    object: str | None = None
    error: Any = None
    rowmill_max_tokens: int | None = None


class _OddMessage(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None


class _OddChoice(msgspec.Struct):
    message: _OddMessage | None = None
    finish_reason: Any = None


class _OddChat(msgspec.Struct):
    choices: list[_OddChoice] | None = None
    usage: Any = None
    model: Any = None
    id: Any = None
    rowmill_max_tokens: int | None = None


_CHATS = msgspec.json.Decoder(_Chat)
_ODD_CHATS = msgspec.json.Decoder(_OddChat)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def read_completion(raw: RawReply) -> Reply | Failure:
    """Reads the body of a successful reply; whatever is no completion is UNREADABLE."""
    return _read_plain(raw) or _read_odd(raw)


def _read_plain(raw: RawReply) -> Reply | None:
    """A completion as most servers tell it; None for whatever has to be looked at more closely."""
    try:
        chat = _CHATS.decode(raw.body)
    except (ValueError, RecursionError):
        return None
    if not chat.choices or chat.error or chat.object == "error":
        return None
    choice = chat.choices[0]
    message = choice.message
    if message is None or choice.error:
        return None
    usage = NO_USAGE if chat.usage is None else chat.usage.usage(has_text=bool(message.content))
    finish_reason = choice.finish_reason or None
    return Reply(
        message.content,
        finish_reason if chat.rowmill_max_tokens is None else _ended(finish_reason, usage, chat.rowmill_max_tokens),
        message.reasoning_content or message.reasoning or None,
        message.refusal or None,
        usage,
        chat.model or None,
        raw.headers.get("x-request-id") or chat.id or None,
    )


def _read_odd(raw: RawReply) -> Reply | Failure:
    """The same with fields of any type."""
    try:
        chat = _ODD_CHATS.decode(raw.body)
    except (ValueError, RecursionError) as fault:
        return unreadable(why_unreadable(raw, fault), raw.body, raw.status)
    message = chat.choices[0].message if chat.choices else None
    if chat.choices is None or message is None:
        return unreadable(
            "the reply has no choices" if not chat.choices else "its choice is empty", raw.body, raw.status
        )
    text, thought = message.content, None
    if isinstance(text, list):
        text, thought = _joined(text)
    usage = read_usage(chat.usage, has_text=bool(text))
    return Reply(
        text,
        _ended(as_name(chat.choices[0].finish_reason), usage, chat.rowmill_max_tokens),
        as_name(message.reasoning_content) or as_name(message.reasoning) or thought,
        as_name(message.refusal),
        usage,
        as_name(chat.model),
        raw.headers.get("x-request-id") or as_name(chat.id),
    )


def _ended(finish_reason: str | None, usage: Usage, most_tokens: int | None) -> str | None:
    """The finish reason; a "length" short of the limit that was asked for (None: not doubted) is an end."""
    tokens = usage.output_tokens
    is_short = most_tokens is not None and tokens is not None and tokens < most_tokens
    return "stop" if is_short and finish_reason == "length" else finish_reason


def as_name(value: object) -> str | None:
    """A text that says something, None for anything else."""
    return value if type(value) is str and value else None


def _joined(parts: Sequence[Any]) -> tuple[str | None, str | None]:
    """Text and thought of a content that is a list of parts."""
    texts, thoughts = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
            elif part.get("type") == "thinking":
                thinking = part.get("thinking")
                thoughts.append(_joined(thinking)[0] or "" if isinstance(thinking, list) else str(thinking or ""))
    return ("".join(texts) if texts else None), ("".join(thoughts) or None)


def read_usage(read: Any, *, has_text: bool) -> Usage:
    """The tokens that a completion reports, as far as they can be true."""
    if not isinstance(read, dict):
        return NO_USAGE
    of_input = read.get("prompt_tokens_details")
    of_output = read.get("completion_tokens_details")
    of_input = of_input if type(of_input) is dict else _NOTHING
    of_output = of_output if type(of_output) is dict else _NOTHING
    cached = of_input.get("cached_tokens", read.get("prompt_cache_hit_tokens", read.get("cached_tokens")))
    usage = Usage(
        as_count(read.get("prompt_tokens")),
        as_count(read.get("completion_tokens")),
        as_count(cached),
        as_count(of_input.get("cache_write_tokens")),
        as_count(of_output.get("reasoning_tokens")),
    )
    return judged(usage, as_count(read.get("total_tokens")), has_text=has_text)


def why_unreadable(raw: RawReply, fault: Exception) -> str:
    """What stands where a reply was to be, for the user."""
    start = raw.body[:512].lstrip().lower()
    if not start:
        return "the reply is empty"
    if start.startswith((b"<!doctype", b"<html")) or "html" in raw.headers.get("content-type", ""):
        return "the reply is HTML, not JSON; check --url if this goes on"
    if start.startswith((b"data:", b"event:", b": ")):
        return "the reply is a stream; leave out the parameter `stream`"
    try:
        raw.body.decode("utf-8")
    except UnicodeDecodeError:
        return "the reply is not UTF-8"
    return f"the reply is no chat completion: {fault}"
