"""Bodies that others wrote, for any OpenAI-compatible API: sent as they are, replies of every shape read.

Must not know where bodies come from, nor HTTP faults or retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rowmill.core.replies.failures import classify, unreadable
from rowmill.core.replies.usage import as_count
from rowmill.errors import FailureKind
from rowmill.ports import Transport
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai import as_name, read_completion, read_usage, why_unreadable
from rowmill.providers.post import Post
from rowmill.providers.presets import ResolvedEndpoint, sibling_url
from rowmill.records import NO_USAGE, Failure, RawReply, Reply, Request, Usage

_encode = msgspec.json.encode


class BatchProvider:
    """One endpoint, to which bodies for several paths go.  The transport stays its owner's."""

    def __init__(
        self,
        transport: Transport,
        endpoint: ResolvedEndpoint,
        credentials: Credentials,
        *,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self._transport = transport
        self._credentials = credentials
        self._unix_time = unix_time
        self._posts: dict[str, Post] = {}
        self._model = b'{"model":' + _encode(endpoint.model)

    def send(self, request: Request, timeout_s: float) -> Coroutine[Any, Any, RawReply | Failure]:
        """See `ports.Provider`."""
        assert request.body is not None
        path = request.body.path
        post = self._posts.get(path)
        if post is None:
            there = replace(self.endpoint, url=sibling_url(self.endpoint.url, path))
            post = self._posts[path] = Post(self._transport, there, self._credentials)
        return post.send(self.body(request), timeout_s)

    def body(self, request: Request) -> bytes:
        """The bytes that are sent; a body that names no model gets the endpoint's."""
        assert request.body is not None
        content = request.body.content
        if request.body.model is not None:
            return content
        return self._model + (b"}" if content == b"{}" else b"," + content[1:])

    def read(self, raw: RawReply) -> Reply | Failure:
        """See `ports.Provider`.  A missing model is the body's fault and not the endpoint's."""
        failure = classify(raw.status, raw.headers, raw.body, now=self._unix_time())
        if failure is None:
            return read_result(raw)
        if failure.kind is not FailureKind.MODEL_MISSING:
            return failure
        words = f"{failure.message}; the body names it, and --param model=NAME puts another one into all bodies"
        return replace(failure, kind=FailureKind.BAD_REQUEST, message=words)

    def reload_credentials(self) -> bool:
        """Reads the key again; True when it changed.  Raises JobError when it is gone."""
        return self._credentials.reload()

    async def close(self) -> None:
        """Nothing to close: the transport is its owner's."""


# --- replies -----------------------------------------------------------------------------------------------

_ABSENT = msgspec.Raw(b"null")


class _Result(msgspec.Struct):
    """What tells the APIs' replies apart: `choices` of completions, `output` of responses, `data`, `results`."""

    choices: msgspec.Raw = _ABSENT
    output: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    results: msgspec.Raw = _ABSENT
    status: Any = None
    incomplete_details: Any = None
    usage: Any = None
    model: Any = None
    id: Any = None


class _TextChoice(msgspec.Struct):
    text: Any = None
    finish_reason: Any = None
    message: msgspec.Raw = _ABSENT


class _Datum(msgspec.Struct):
    embedding: msgspec.Raw = _ABSENT
    score: msgspec.Raw = _ABSENT


_RESULTS = msgspec.json.Decoder(_Result)
_CHOICES = msgspec.json.Decoder(list[_TextChoice])
_DATA = msgspec.json.Decoder(list[_Datum])


def read_result(raw: RawReply) -> Reply | Failure:
    """Reads the body of a successful reply of any of the APIs.

    The text is the first choice's, or the numbers asked for as JSON: an embedding, a score, the results.
    """
    try:
        raw.body.decode("utf-8")  # the parts that are passed on unread, too
        result = _RESULTS.decode(raw.body)
        if _is_there(result.choices):
            return _completion(raw, result)
        if _is_there(result.output):
            return _response(raw, result)
        text = _numbers(result.data) if _is_there(result.data) else bytes(result.results).decode()
    except (ValueError, RecursionError) as fault:
        return unreadable(why_unreadable(raw, fault), raw.body, raw.status)
    if text in ("null", "[]"):
        return unreadable("the reply holds no result", raw.body, raw.status)
    return _reply(raw, result, text, "stop", _usage_without_output(result.usage))


def _completion(raw: RawReply, result: _Result) -> Reply | Failure:
    choices = _CHOICES.decode(result.choices)
    first = choices[0] if choices else None
    if first is None or not isinstance(first.text, str):
        return _chat(raw, first)
    text, finish = first.text, as_name(first.finish_reason)
    if not text.strip() and finish not in (None, "length"):
        text = _encode({"text": text}).decode()
    return _reply(raw, result, text, finish, read_usage(result.usage, has_text=bool(text)))


def _chat(raw: RawReply, first: _TextChoice | None) -> Reply | Failure:
    """A message without text is whole where it has an end: its calls of tools, or its sound, are the answer."""
    reply = read_completion(raw)
    if isinstance(reply, Failure) or first is None or reply.refusal or reply.reasoning:
        return reply
    if (reply.text or "").strip() or reply.finish_reason in (None, "length"):
        return reply
    return reply.replaced(text=bytes(first.message).decode())


def _response(raw: RawReply, result: _Result) -> Reply:
    items = [item for item in msgspec.json.decode(result.output) if isinstance(item, dict)]
    parts = [part for item in items if item.get("type") == "message" for part in _parts(item.get("content"))]
    thoughts = [part for item in items if item.get("type") == "reasoning" for part in _parts(item.get("summary"))]
    text = _texts(parts, "text")
    finish: str | None = "stop"
    if result.status != "completed" and result.status is not None:
        details = result.incomplete_details
        finish = as_name(details.get("reason")) if isinstance(details, dict) else as_name(result.status)
        finish = "length" if finish == "max_output_tokens" else finish
    if not text.strip() and finish == "stop" and items:
        text = bytes(result.output).decode()
    return _reply(raw, result, text or None, finish, _response_usage(result.usage, has_text=bool(text))).replaced(
        refusal=_texts(parts, "refusal") or None, reasoning=_texts(thoughts, "text") or None
    )


def _reply(raw: RawReply, result: _Result, text: str | None, finish: str | None, usage: Usage) -> Reply:
    request_id = raw.headers.get("x-request-id") or as_name(result.id)
    return Reply(text, finish, usage=usage, model=as_name(result.model), request_id=request_id)


def _is_there(part: msgspec.Raw) -> bool:
    return bytes(part) != b"null"


def _parts(content: object) -> Sequence[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _texts(parts: Sequence[dict[str, Any]], name: str) -> str:
    return "".join(part[name] for part in parts if isinstance(part.get(name), str))


def _numbers(data: msgspec.Raw) -> str:
    """Embeddings or scores, digits untouched: one by itself, several as a list; anything else as it is."""
    try:
        read = _DATA.decode(data)
    except msgspec.ValidationError:
        return bytes(data).decode()
    for found in ([bytes(one.embedding) for one in read], [bytes(one.score) for one in read]):
        if found and b"null" not in found:
            return (found[0] if len(found) == 1 else b"[" + b",".join(found) + b"]").decode()
    return bytes(data).decode()


def _usage_without_output(read: Any) -> Usage:
    """Of APIs that generate nothing."""
    if not isinstance(read, dict):
        return NO_USAGE
    tokens = read.get("prompt_tokens", read.get("input_tokens", read.get("total_tokens")))
    return Usage(as_count(tokens), 0)


def _response_usage(read: Any, *, has_text: bool) -> Usage:
    if not isinstance(read, dict):
        return NO_USAGE
    return read_usage(
        {
            "prompt_tokens": read.get("input_tokens"),
            "completion_tokens": read.get("output_tokens"),
            "total_tokens": read.get("total_tokens"),
            "prompt_tokens_details": read.get("input_tokens_details"),
            "completion_tokens_details": read.get("output_tokens_details"),
        },
        has_text=has_text,
    )
