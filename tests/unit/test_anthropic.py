"""The messages API: what is sent, and recorded replies read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rowmill.core.replies.answers import AnswerSchema, compile_schema, read_answer
from rowmill.errors import FailureKind
from rowmill.ports import Transport
from rowmill.providers.anthropic import DEFAULT_MAX_TOKENS, AnthropicProvider
from rowmill.providers.credentials import Credentials
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Failure, Message, RawReply, Reply, Request, Usage

SCHEMA = compile_schema("sentiment: positive|negative")
ASKED = [
    Message("system", "Label."),
    Message("user", "I love it."),
    Message("assistant", "positive"),
    Message("user", "It broke. 馬"),
]
MESSAGE: Mapping[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "negative"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 2095,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 503,
        "service_tier": "standard",
    },
}
TOOL_USE: Mapping[str, Any] = {
    "type": "tool_use",
    "id": "toolu_01",
    "name": "answer",
    "input": {"sentiment": "negative"},
}


class Recorder(Transport):
    """Keeps what is sent and answers with one reply."""

    def __init__(self, reply: RawReply) -> None:
        self.reply = reply
        self.sent: list[tuple[str, Mapping[str, str], bytes, float]] = []
        self.closed = False

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        self.sent.append((url, headers, body, timeout_s))
        return self.reply

    async def close(self) -> None:
        self.closed = True


def raw(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawReply:
    return RawReply(status, headers or {}, json.dumps(body).encode(), 0.5)


def provider(schema: AnswerSchema | None = None, transport: Recorder | None = None) -> AnthropicProvider:
    endpoint = resolve("anthropic/claude-sonnet-4-5")
    credentials = Credentials(endpoint, environment={"ANTHROPIC_API_KEY": "sk-ant-secret"})
    return AnthropicProvider(transport or Recorder(raw(MESSAGE)), endpoint, credentials, schema, unix_time=lambda: 0.0)


def body(schema: AnswerSchema | None = None, **params: object) -> dict[str, Any]:
    found = json.loads(provider(schema).body(Request(ASKED, params)))
    assert isinstance(found, dict)
    return found


def read(**changes: object) -> Reply:
    found = provider().read(raw({**MESSAGE, **changes}))
    assert isinstance(found, Reply)
    return found


def failed(body: object, status: int, headers: Mapping[str, str] | None = None) -> Failure:
    found = provider().read(raw(body, status, headers))
    assert isinstance(found, Failure)
    return found


def fault(kind: str, message: str) -> Mapping[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_01"}


def test_the_system_message_stands_apart_and_a_token_limit_is_always_sent() -> None:
    assert body() == {
        "model": "claude-sonnet-4-5",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "system": "Label.",
        "messages": [
            {"role": "user", "content": "I love it."},
            {"role": "assistant", "content": "positive"},
            {"role": "user", "content": "It broke. 馬"},
        ],
    }


def test_the_jobs_parameters_go_in_as_they_are() -> None:
    found = body(max_tokens=64, temperature=0, stop_sequences=["\n"])
    assert (found["max_tokens"], found["temperature"], found["stop_sequences"]) == (64, 0, ["\n"])


def test_the_key_and_the_version_are_headers() -> None:
    transport = Recorder(raw(MESSAGE))
    sent = asyncio.run(provider(transport=transport).send(Request(ASKED, {}), 9.0))
    assert sent is transport.reply
    [(url, headers, _, timeout_s)] = transport.sent
    assert url == "https://api.anthropic.com/v1/messages"
    assert headers == {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-api-key": "sk-ant-secret",
    }
    assert timeout_s == 9.0


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h/v1", "http://h/v1/messages"),
        ("http://h/v1/", "http://h/v1/messages"),
        ("http://h", "http://h/v1/messages"),
        ("http://h/v1/messages", "http://h/v1/messages"),
        ("http://h/v1?api-version=1", "http://h/v1/messages?api-version=1"),
    ],
)
def test_the_address_of_the_messages_is_found(base: str, url: str) -> None:
    assert resolve("anthropic/claude-x", base).url == url


def test_a_key_that_the_server_echoes_is_taken_out() -> None:
    transport = Recorder(raw({**MESSAGE, "content": [{"type": "text", "text": "key sk-ant-secret"}]}))
    sent = asyncio.run(provider(transport=transport).send(Request(ASKED, {}), 9.0))
    assert isinstance(sent, RawReply)
    assert b"sk-ant-secret" not in sent.body


def test_a_schema_is_asked_for_as_a_tool_that_must_be_called() -> None:
    found = body(SCHEMA)
    assert found["tool_choice"] == {"type": "tool", "name": "answer"}
    assert [(tool["name"], tool["input_schema"]) for tool in found["tools"]] == [("answer", SCHEMA.json_schema)]


@pytest.mark.parametrize(
    ("schema", "params"),
    [
        (SCHEMA, {"thinking": {"type": "adaptive"}}),
        (compile_schema({"type": "array", "items": {"type": "string"}}), {}),
    ],
)
def test_where_a_tool_cannot_be_forced_the_schema_is_asked_for_in_words(
    schema: AnswerSchema, params: dict[str, object]
) -> None:
    found = body(schema, **params)
    assert "tools" not in found
    assert found["system"].startswith("Label.\n\n")
    assert "matches this schema" in found["system"]


def test_a_text_reply_is_read() -> None:
    assert read() == Reply(
        "negative", "stop", None, None, Usage(2095, 503, 0, 0), "claude-sonnet-4-5-20250929", "msg_01"
    )


def test_the_input_of_the_tool_is_the_answer() -> None:
    preamble = {"type": "text", "text": "Here it is."}
    found = read(content=[preamble, TOOL_USE], stop_reason="tool_use")
    assert read_answer(found, SCHEMA) == Answer({"sentiment": "negative"})


def test_thinking_is_reasoning() -> None:
    thought = {"type": "thinking", "thinking": "It broke, so", "signature": "x"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    found = read(content=[thought, hidden, {"type": "text", "text": "negative"}])
    assert (found.text, found.reasoning) == ("negative", "It broke, so")


def test_cached_tokens_are_added_up_because_their_input_leaves_them_out() -> None:
    usage = {
        "input_tokens": 50,
        "cache_read_input_tokens": 100_000,
        "cache_creation_input_tokens": 248,
        "output_tokens": 7,
    }
    assert read(usage=usage).usage == Usage(100_298, 7, 100_000, 248)


@pytest.mark.parametrize(
    ("by_time", "kept", "total"),
    [
        ({"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100}, 100, 298),
        ({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 249}, 249, None),
        (None, None, 298),
    ],
)
def test_what_is_kept_for_an_hour_is_told_apart(by_time: Any, kept: int | None, total: int | None) -> None:
    usage = {
        "input_tokens": 50,
        "cache_creation_input_tokens": 248,
        "cache_creation": by_time,
        "output_tokens": 7,
    }
    assert read(usage=usage).usage == Usage(total, 7, None, 248, cache_write_1h_tokens=kept)


def test_where_nothing_tells_how_long_a_cache_is_kept_it_is_as_long_as_was_asked_for() -> None:
    one = provider()
    one.body(Request(ASKED, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}))
    found = one.read(
        raw({**MESSAGE, "usage": {"input_tokens": 5, "cache_creation_input_tokens": 9, "output_tokens": 1}})
    )
    assert isinstance(found, Reply)
    assert found.usage.cache_write_1h_tokens == 9


@pytest.mark.parametrize("usage", [None, {}])
def test_missing_usage_is_unknown(usage: object) -> None:
    assert read(usage=usage).usage == Usage()


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_reply_cut_at_the_limit_is_truncated(reason: str) -> None:
    found = read_answer(read(content=[TOOL_USE], stop_reason=reason), SCHEMA)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TRUNCATED


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "I can't help with that."}]])
def test_a_refusal_is_refused(content: list[object]) -> None:
    found = read_answer(read(content=content, stop_reason="refusal"), SCHEMA)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.REFUSED


def test_the_request_id_comes_from_the_header() -> None:
    found = provider().read(raw(MESSAGE, headers={"request-id": "req_01"}))
    assert isinstance(found, Reply)
    assert found.request_id == "req_01"


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (400, "invalid_request_error", "max_tokens: Field required", FailureKind.BAD_REQUEST),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000", FailureKind.CONTEXT_LENGTH),
        (401, "authentication_error", "invalid x-api-key", FailureKind.CREDENTIALS),
        (402, "billing_error", "add credit", FailureKind.QUOTA),
        (403, "permission_error", "no access", FailureKind.FORBIDDEN),
        (404, "not_found_error", "model: claude-nonesuch", FailureKind.MODEL_MISSING),
        (404, "not_found_error", "Not Found", FailureKind.BAD_REQUEST),
        (413, "request_too_large", "too large", FailureKind.BAD_REQUEST),
        (429, "rate_limit_error", "slow down", FailureKind.THROTTLED),
        (500, "api_error", "Internal server error", FailureKind.SERVER),
        (529, "overloaded_error", "Overloaded", FailureKind.THROTTLED),
        (200, "overloaded_error", "Overloaded", FailureKind.THROTTLED),
    ],
)
def test_errors_are_of_their_kind(status: int, kind: str, message: str, expected: FailureKind) -> None:
    assert failed(fault(kind, message), status).kind is expected


def test_a_throttle_says_how_long_to_wait() -> None:
    headers = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "1970-01-01T00:00:20Z",
    }
    assert failed(fault("rate_limit_error", "slow"), 429, headers).retry_after_s == 20.0
    assert failed(fault("rate_limit_error", "slow"), 429, {"retry-after": "7"}).retry_after_s == 7.0


@pytest.mark.parametrize("body", [{}, [], "text", {"content": None}, {"content": [1]}, {"content": "x"}])
def test_what_is_no_message_is_unreadable(body: object) -> None:
    assert failed(body, 200).kind is FailureKind.UNREADABLE


def test_the_transport_stays_its_owners() -> None:
    transport = Recorder(raw(MESSAGE))
    asyncio.run(provider(transport=transport).close())
    assert not transport.closed
