"""Speaks Anthropic's messages API over a transport; the one place where its dialect is known.

Must not know rows, lanes or schemas' insides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from rowmill.core.replies import failures
from rowmill.core.replies.usage import as_count, judged
from rowmill.ports import AnswerReader, Transport
from rowmill.providers.asking import instructed, instruction
from rowmill.providers.credentials import Credentials
from rowmill.providers.post import Post
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import NO_USAGE, Failure, Message, RawReply, Reply, Request, Usage

DEFAULT_MAX_TOKENS = 4096  # the API needs a limit; this one is stated where the job states none

_encode = msgspec.json.Encoder(decimal_format="number").encode

_TOOL = "answer"
_DESCRIPTION = "Gives the answer."
_REFUSED = "the model declined to answer"
_FINISH: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class _Usage(msgspec.Struct):
    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: Any = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Reply(msgspec.Struct):
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    model: str | None = None
    id: str | None = None


class AnthropicProvider:
    """One model behind the messages API.

    A schema whose root is an object is asked for as a tool that the model must call, because every model knows
    tools; any other one, and one that meets a `thinking` parameter (which forbids forced tools), is asked for in
    the prompt.  The transport stays its owner's: `close` does not close it.
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
        self._words = None if schema is None else instruction(schema)
        self._tool = None if schema is None else _forced_tool(schema)
        self._decoder = msgspec.json.Decoder(_Reply)
        self._keeps_1h = False

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        """See `ports.Provider`."""
        return await self._post.send(self.body(request), timeout_s)

    def body(self, request: Request) -> bytes:
        """The request's body; `params` go in as they are."""
        messages, asked = self._asked(request)
        system = "\n\n".join(message.content for message in messages if message.role == "system")
        body: dict[str, object] = {"model": request.model or self.endpoint.model, "max_tokens": DEFAULT_MAX_TOKENS}
        if system:
            body["system"] = system
        body["messages"] = [message for message in messages if message.role != "system"]
        content = _encode({**body, **asked, **request.params})
        self._keeps_1h = self._keeps_1h or b'"ttl":"1h"' in content
        return content

    def read(self, raw: RawReply) -> Reply | Failure:
        """Reads a raw reply; pure but for the clock that dates in headers are held against."""
        failure = failures.classify(raw.status, raw.headers, raw.body, now=self._unix_time())
        if failure is not None:
            return self._post.credentials.explained(failure)
        try:
            read = self._decoder.decode(raw.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            return failures.unreadable(f"not a reply of the messages API: {fault}", raw.body, raw.status)
        if not read.content and read.stop_reason is None:
            return failures.unreadable("the reply holds no content", raw.body, raw.status)
        text = _text(read.content or ())
        return Reply(
            text=text,
            finish_reason=_FINISH.get(read.stop_reason or "", read.stop_reason),
            reasoning=_joined(block.thinking for block in read.content or ()),
            refusal=(text or _REFUSED) if read.stop_reason == "refusal" else None,
            usage=NO_USAGE if read.usage is None else _usage(read.usage, self._keeps_1h, has_text=bool(text)),
            model=read.model,
            request_id=raw.headers.get("request-id") or read.id,
        )

    def reload_credentials(self) -> bool:
        """Reads the key again; True when it changed.  Raises JobError when it is gone."""
        return self._post.credentials.reload()

    async def close(self) -> None:
        """Nothing to close: the transport is its owner's."""

    def _asked(self, request: Request) -> tuple[Sequence[Message], Mapping[str, object]]:
        """The messages and what is added to the body, so that the answer fits the schema."""
        if self._words is None or "tools" in request.params:
            return request.messages, {}
        if self._tool is None or "thinking" in request.params:
            return instructed(request.messages, self._words), {}
        return request.messages, self._tool


def _forced_tool(schema: AnswerReader) -> Mapping[str, object] | None:
    """What makes the model call a tool with the answer, encoded once; None where no tool can take it."""
    if schema.json_schema.get("type") != "object":
        return None
    tool = {"name": _TOOL, "description": _DESCRIPTION, "input_schema": schema.json_schema}
    return {
        "tools": msgspec.Raw(_encode([tool])),
        "tool_choice": msgspec.Raw(_encode({"type": "tool", "name": _TOOL})),
    }


def _text(blocks: Sequence[_Block]) -> str | None:
    """The tool's input as JSON where the tool was called, else what was said."""
    for block in blocks:
        if block.type == "tool_use" and block.name == _TOOL and block.input:
            return bytes(block.input).decode()
    return _joined(block.text for block in blocks)


def _joined(parts: Any) -> str | None:
    said = [part for part in parts if part]
    return "".join(said) if said else None


def _usage(usage: _Usage, keeps_1h: bool, *, has_text: bool) -> Usage:
    """Their `input_tokens` leaves out what was read from or written to the cache; ours has it all.

    Where nothing tells for how long it is kept, and an hour was asked for, it is an hour.
    """
    read, written = as_count(usage.cache_read_input_tokens), as_count(usage.cache_creation_input_tokens)
    told = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    is_odd = any(value is not None and as_count(value) is None for value in told)
    by_time = usage.cache_creation if isinstance(usage.cache_creation, dict) else {}
    kept = as_count(by_time.get("ephemeral_1h_input_tokens"))
    if kept is None and keeps_1h:
        kept = written
    is_odd = is_odd or (kept or 0) > (written or 0)
    fresh = None if is_odd else as_count(usage.input_tokens)
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    counted = Usage(total, as_count(usage.output_tokens), read, written, cache_write_1h_tokens=kept)
    return judged(counted, has_text=has_text)
