"""Chat completions: bodies that are sent, replies that are read."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.replies.answers import compile_schema
from rowmill.errors import FailureKind
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai import OpenAIProvider, read_completion, read_usage
from rowmill.providers.presets import resolve
from rowmill.records import NO_USAGE, Failure, Message, RawReply, Reply, Request, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

ASK = Request((Message("user", "Grüße"),), {"temperature": 0, "max_tokens": 8})
KEY = "sk-0123456789"


class FakeTransport:
    """Keeps what is sent, answers what it is told."""

    def __init__(self, answer: RawReply | Failure) -> None:
        self.answer = answer
        self.sent: list[tuple[str, Mapping[str, str], bytes, float]] = []

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        self.sent.append((url, headers, body, timeout_s))
        return self.answer

    async def close(self) -> None:
        raise AssertionError("the transport is its owner's")


def raw(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawReply:
    return RawReply(status, headers or {}, body if isinstance(body, bytes) else json.dumps(body).encode(), 0.1)


def provider(model: str = "openai/gpt", schema: str | None = None, answer: RawReply | None = None) -> OpenAIProvider:
    endpoint = resolve(model)
    credentials = Credentials(endpoint, environment=dict.fromkeys([endpoint.key_env or ""], KEY))
    compiled = compile_schema(schema) if schema else None
    return OpenAIProvider(FakeTransport(answer or raw({})), endpoint, credentials, compiled)


def body(of: OpenAIProvider, request: Request = ASK) -> Any:
    return json.loads(of.body(request))


def test_a_request_is_one_plain_body() -> None:
    assert body(provider()) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "Grüße"}],
        "temperature": 0,
        "max_tokens": 8,
    }
    assert "Grüße".encode() in provider().body(ASK)


def test_a_request_without_parameters_is_whole() -> None:
    assert set(body(provider(), Request(ASK.messages, {}))) == {"model", "messages"}


def test_other_parameters_for_another_row_are_not_mixed_up() -> None:
    asked = provider()
    assert body(asked)["max_tokens"] == 8
    assert body(asked, Request(ASK.messages, {"top_p": 1})) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "Grüße"}],
        "top_p": 1,
    }
    assert body(asked)["max_tokens"] == 8


def test_a_schema_is_asked_for_as_response_format() -> None:
    found = body(provider(schema="a: yes|no"))["response_format"]
    assert found["type"] == "json_schema"
    assert found["json_schema"]["strict"] is True
    assert found["json_schema"]["schema"]["properties"]["a"]["enum"] == ["yes", "no"]


def test_a_server_without_schemas_gets_it_in_the_system_message() -> None:
    messages = (Message("system", "Label."), Message("user", "x"))
    found = body(provider("deepseek/chat", "a: yes|no"), Request(messages, {}))
    assert found["response_format"] == {"type": "json_object"}
    assert found["messages"][0]["content"].startswith("Label.\n\nAnswer with JSON that matches this schema: {")
    found = body(provider("llamafactory/x", "a: yes|no"))
    assert "response_format" not in found
    assert [message["role"] for message in found["messages"]] == ["system", "user"]


def test_address_key_and_deadline_go_to_the_transport() -> None:
    asked = provider()
    asyncio.run(asked.send(ASK, 7.0))
    transport = asked._post.transport
    assert isinstance(transport, FakeTransport)
    url, headers, _, timeout_s = transport.sent[0]
    assert (url, timeout_s) == ("https://api.openai.com/v1/chat/completions", 7.0)
    assert headers == {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    asyncio.run(asked.close())


def test_a_key_that_the_server_echoes_never_comes_back() -> None:
    asked = provider(answer=raw({"error": {"message": f"Incorrect API key: {KEY}"}}, 401))
    found = asyncio.run(asked.send(ASK, 1.0))
    assert isinstance(found, RawReply)
    assert KEY.encode() not in found.body
    failure = asked.read(found)
    assert isinstance(failure, Failure)
    assert "Incorrect API key: ***" in failure.message


WHOLE = {
    "id": "chat-1",
    "model": "gpt-2024",
    "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 262960,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 257955},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}


def read(content: object, **headers: str) -> Reply | Failure:
    return provider().read(raw(content, headers=headers))


def message(**fields: object) -> dict[str, object]:
    return {"choices": [{"message": fields, "finish_reason": "stop"}]}


def test_a_whole_reply_is_read() -> None:
    usage = Usage(262960, 12, 257955, None, 5)
    assert read(WHOLE) == Reply("yes", "stop", None, None, usage, "gpt-2024", "chat-1")


def test_the_servers_request_id_goes_before_the_replys() -> None:
    found = read(WHOLE, **{"x-request-id": "req-7"})
    assert isinstance(found, Reply)
    assert found.request_id == "req-7"


@pytest.mark.parametrize(
    ("fields", "text", "reasoning"),
    [
        ({"content": None, "reasoning_content": "hm"}, None, "hm"),
        ({"content": "x", "reasoning": "hm"}, "x", "hm"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", None),
        ({"content": [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"text": "a"}]}, "a", "hm"),
        ({"content": []}, None, None),
        ({"content": "x", "reasoning": {"odd": 1}, "refusal": 3}, "x", None),
    ],
)
def test_text_and_reasoning_are_found_in_every_dialect(
    fields: dict[str, object], text: str | None, reasoning: str | None
) -> None:
    found = read(message(**fields))
    assert isinstance(found, Reply)
    assert (found.text, found.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, NO_USAGE),
        ({}, Usage()),
        ({"prompt_tokens": 5.0, "completion_tokens": -1}, Usage(5)),
        ({"prompt_tokens": True, "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, Usage(9, None, 4)),
        ("odd", NO_USAGE),
    ],
)
def test_odd_usage_is_unknown_and_never_zero(usage: object, expected: Usage) -> None:
    found = read(message(content="x") | {"usage": usage})
    assert isinstance(found, Reply)
    assert found.usage == expected


COUNTS = st.sampled_from([0, 5, 5.0, 2.5, -1, None, True, "7", 10**13])
DETAILS = st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens", "audio_tokens"])
USAGES = st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_cache_hit_tokens", "cached_tokens", "total_tokens"]),
    COUNTS,
)


@given(
    USAGES,
    st.none() | st.dictionaries(DETAILS, COUNTS) | st.just("odd"),
    st.none() | st.dictionaries(DETAILS, COUNTS) | st.just([1]),
)
def test_usage_is_read_alike_whether_it_has_the_usual_types_or_not(
    usage: dict[str, object], of_input: object, of_output: object
) -> None:
    told = {**usage, "prompt_tokens_details": of_input, "completion_tokens_details": of_output}
    found = read(message(content="x") | {"usage": told})
    assert isinstance(found, Reply)
    assert found.usage == read_usage(told, has_text=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
        (b'{"choices":[{"message":{"content":"\xff\xfe"}}]}', "UTF-8"),
        (b"data: {}\n\n", "stream"),
        (b'{"choices":[{"message"', "no chat completion"),
        (b"[]", "no chat completion"),
        (b'"text"', "no chat completion"),
        ({"choices": []}, "no choices"),
        ({"choices": None, "usage": None, "model": None}, "no choices"),
        ({"choices": [{"message": None}]}, "empty"),
        ({"choices": [{"message": {"content": 7}}]}, "no chat completion"),
        (b"[" * 100_000, "no chat completion"),
    ],
)
def test_what_is_no_completion_is_unreadable_and_says_why(content: object, words: str) -> None:
    found = read(content)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREADABLE
    assert words in found.message


def answered(finish: str, tokens: int | None) -> RawReply:
    usage = None if tokens is None else {"prompt_tokens": 5, "completion_tokens": tokens}
    return raw({"choices": [{"message": {"content": "Yes."}, "finish_reason": finish}], "usage": usage})


def finish_reason(model: str, answer: RawReply, params: Mapping[str, object]) -> str | None:
    asked = provider(model, answer=answer)
    seen = asyncio.run(asked.send(Request(ASK.messages, params), 1.0))
    assert isinstance(seen, RawReply)
    read = OpenAIProvider.read(provider(model), seen)
    assert isinstance(read, Reply)
    assert read.text == "Yes."
    return read.finish_reason


@pytest.mark.parametrize(
    ("told", "tokens", "params", "taken"),
    [
        ("length", 3, {"max_tokens": 8}, "stop"),  # it ended at a stop word that is not the tokenizer's end token
        ("length", 8, {"max_tokens": 8}, "length"),
        ("length", None, {"max_tokens": 8}, "length"),
        ("length", 3, {}, "length"),  # the server's own limit is not known
        ("stop", 8, {"max_tokens": 8}, "stop"),  # the end token itself was the eighth
        ("stop", 3, {"max_tokens": 8}, "stop"),
    ],
)
def test_llamafactorys_length_is_believed_only_at_the_limit(
    told: str, tokens: int | None, params: Mapping[str, object], taken: str
) -> None:
    assert finish_reason("llamafactory/x", answered(told, tokens), params) == taken


def test_the_length_of_other_servers_is_believed() -> None:
    """A full context ends an answer before its token limit."""
    assert finish_reason("vllm/x", answered("length", 3), {"max_tokens": 8}) == "length"


def test_a_reply_that_is_no_json_object_is_not_noted_in() -> None:
    seen = asyncio.run(provider("llamafactory/x", answer=raw(b"[1]\n")).send(ASK, 1.0))
    assert isinstance(seen, RawReply)
    assert seen.body == b"[1]\n"


def test_errors_are_told_apart_before_reading() -> None:
    throttled = read({"choices": None, "error": {"code": 429, "message": "slow"}})
    assert isinstance(throttled, Failure)
    assert throttled.kind is FailureKind.THROTTLED


@pytest.mark.parametrize("content", ["an answer", ["an answer"]], ids=["plain", "odd"])
@pytest.mark.parametrize(
    ("of_chat", "of_choice"),
    [({"error": {"code": 500}}, {}), ({"error": "x"}, {}), ({"object": "error"}, {}), ({}, {"error": {"code": 502}})],
)
def test_an_error_beside_an_answer_is_an_error(
    content: object, of_chat: dict[str, object], of_choice: dict[str, object]
) -> None:
    assert isinstance(read({"choices": [{"message": {"content": content}, **of_choice}], **of_chat}), Failure)


@pytest.mark.parametrize("nothing", [None, {}, "", False])
def test_an_error_that_says_nothing_is_none(nothing: object) -> None:
    seen = read({"choices": [{"message": {"content": "an answer"}, "error": nothing}], "error": nothing})
    assert isinstance(seen, Reply)
    assert seen.text == "an answer"


@given(st.binary(max_size=200))
def test_no_body_whatever_makes_an_exception(content: bytes) -> None:
    found = read_completion(raw(content))
    assert isinstance(found, Reply | Failure)
