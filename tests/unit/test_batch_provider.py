"""Bodies go out as they are, to the path of their own; replies of every API are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rowmill.core.replies.answers import read_answer
from rowmill.errors import FailureKind
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai_bodies import BatchProvider
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Body, Failure, RawReply, Reply, Request, Usage

KEY = "sk-not-a-real-key"


class FakeTransport:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply:
        self.sent.append((url, headers, body))
        return raw({})

    async def close(self) -> None:
        pass


def raw(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawReply:
    return RawReply(status, headers or {}, body if isinstance(body, bytes) else json.dumps(body).encode(), 0.1)


def provider(
    model: str = "openai/gpt", url: str | None = None, transport: FakeTransport | None = None
) -> BatchProvider:
    endpoint = resolve(model, url)
    credentials = Credentials(endpoint, environment={"OPENAI_API_KEY": KEY, "AZURE_OPENAI_API_KEY": KEY})
    return BatchProvider(transport or FakeTransport(), endpoint, credentials, unix_time=lambda: 0.0)


def request(path: str = "/chat/completions", content: bytes = b'{"model":"m"}', model: str | None = "m") -> Request:
    return Request((), {}, Body(path, content, model, None))


def read(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    found = provider().read(raw(body, status, headers))
    assert isinstance(found, Reply), found
    return found


def refused(body: object, status: int = 200) -> Failure:
    found = provider().read(raw(body, status))
    assert isinstance(found, Failure)
    return found


def answered(body: object) -> object:
    found = read_answer(read(body), None)
    return found.values["answer"] if isinstance(found, Answer) else found.kind


def chat(message: Mapping[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


@pytest.mark.parametrize(
    ("model", "url", "path", "posted_to"),
    [
        ("openai/gpt", None, "/embeddings", "https://api.openai.com/v1/embeddings"),
        ("vllm/m", "http://localhost:8000/v1", "/score", "http://localhost:8000/v1/score"),
        ("vllm/m", "http://localhost:8000", "/chat/completions", "http://localhost:8000/v1/chat/completions"),
        ("m", "http://h/a/v3/chat/completions", "/responses", "http://h/a/v3/responses"),
        (
            "azure/d",
            "https://n.azure.com/openai/v1?v=1",
            "/completions",
            "https://n.azure.com/openai/v1/completions?v=1",
        ),
    ],
)
def test_a_body_goes_to_its_path_below_the_endpoint(model: str, url: str | None, path: str, posted_to: str) -> None:
    transport = FakeTransport()
    asyncio.run(provider(model, url, transport).send(request(path), 7.0))
    assert [(to, body) for to, _, body in transport.sent] == [(posted_to, b'{"model":"m"}')]


def test_a_key_goes_with_every_body() -> None:
    transport = FakeTransport()
    asyncio.run(provider(transport=transport).send(request("/embeddings"), 7.0))
    assert transport.sent[0][1]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("content", "sent"),
    [(b'{"a":[1]}', b'{"model":"gpt","a":[1]}'), (b"{}", b'{"model":"gpt"}')],
)
def test_a_body_without_a_model_gets_the_endpoints(content: bytes, sent: bytes) -> None:
    assert provider().body(request(content=content, model=None)) == sent


def test_a_chat_completion_is_read_as_everywhere() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    found = read(chat({"content": "hi"}, usage=usage, model="m-1", id="c"), headers={"x-request-id": "r"})
    assert (found.text, found.finish_reason, found.model, found.request_id) == ("hi", "stop", "m-1", "r")
    assert found.usage == Usage(5, 2)


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"content": None, "audio": {"data": "UklG"}},
        {"content": ""},
        {"content": " \n"},
    ],
)
def test_a_message_without_text_that_has_an_end_is_the_answer_itself(message: dict[str, Any]) -> None:
    assert json.loads(str(answered(chat(message, "tool_calls")))) == message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (chat({"content": None}, None), FailureKind.UNREADABLE),
        (chat({"content": None}, "length"), FailureKind.TRUNCATED),
        (chat({"content": "a"}, "length"), FailureKind.TRUNCATED),
        (chat({"content": None}, "content_filter"), FailureKind.FILTERED),
        (chat({"content": None, "refusal": "no"}), FailureKind.REFUSED),
        ({"choices": [{"text": "a", "finish_reason": "length"}]}, FailureKind.TRUNCATED),
        ({"choices": [{"text": "", "finish_reason": None}]}, FailureKind.UNREADABLE),
    ],
)
def test_an_end_that_is_none_is_told_as_everywhere(body: dict[str, Any], kind: FailureKind) -> None:
    assert answered(body) is kind


def test_reasoning_alone_is_the_answer_as_everywhere() -> None:
    assert answered(chat({"content": None, "reasoning_content": "x"})) == "x"


def test_a_text_completion_is_read() -> None:
    body = {"choices": [{"text": " one", "finish_reason": "stop"}, {"text": "two"}], "model": "m"}
    assert answered(body) == " one"
    assert answered({"choices": [{"text": "", "finish_reason": "stop"}]}) == '{"text":""}'


def response(output: object, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"object": "response", "id": "resp", "error": None, "status": status, "output": output, **more}


def test_a_response_is_read_with_its_reasoning_and_its_usage() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]},
    ]
    usage = {
        "input_tokens": 9,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    found = read(response(output, usage=usage))
    assert (found.text, found.reasoning, found.request_id) == ("ab", "hm", "resp")
    assert found.usage == Usage(9, 4, 3, None, 2)


@pytest.mark.parametrize(
    ("output", "more", "kind"),
    [
        ([], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, FailureKind.TRUNCATED),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, FailureKind.FILTERED),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], {}, FailureKind.REFUSED),
        ([], {"status": "queued"}, FailureKind.UNREADABLE),
        ([], {}, FailureKind.UNREADABLE),
    ],
)
def test_a_response_that_is_none_is_told_as_everywhere(
    output: list[Any], more: dict[str, Any], kind: FailureKind
) -> None:
    assert answered(response(output, **more)) is kind


def test_a_response_of_calls_is_the_answer_itself() -> None:
    output = [{"type": "function_call", "name": "f", "arguments": "{}"}]
    assert json.loads(str(answered(response(output)))) == output


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b'{"data":[{"embedding":[0.10,-1e-3]}]}', "[0.10,-1e-3]"),
        (b'{"data":[{"embedding":[1]},{"embedding":[2]}]}', "[[1],[2]]"),
        (b'{"data":[{"embedding":"AAAA"}]}', '"AAAA"'),
        (b'{"data":[{"index":0,"score":0.50},{"index":1,"score":1}]}', "[0.50,1]"),
        (b'{"data":[{"other":1}]}', '[{"other":1}]'),
        (b'{"results":[{"index":1,"relevance_score":0.5}]}', '[{"index":1,"relevance_score":0.5}]'),
    ],
)
def test_numbers_are_handed_on_with_their_digits(body: bytes, answer: str) -> None:
    assert answered(body) == answer


def test_apis_that_generate_nothing_use_no_output_tokens() -> None:
    data = [{"embedding": [1]}]
    assert read({"data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}}).usage == Usage(3, 0)
    assert read({"results": data, "usage": {"total_tokens": 4}}).usage == Usage(4, 0)
    assert read({"results": data}).usage == Usage()


@pytest.mark.parametrize(
    "body",
    [{}, [], {"data": []}, {"results": None}, {"choices": []}, b"", b"<html>", b'{"data":["\xff"]}', {"choices": 7}],
)
def test_what_holds_no_result_is_unreadable(body: object) -> None:
    assert refused(body).kind is FailureKind.UNREADABLE


def test_an_error_inside_a_success_counts_by_its_code() -> None:
    assert refused({"choices": None, "error": {"code": 429}}).kind is FailureKind.THROTTLED
    assert refused(response([], "failed") | {"error": {"code": "server_error"}}).kind is FailureKind.SERVER


def test_a_missing_model_is_the_bodys_fault_and_the_remedy_is_named() -> None:
    body = {"error": {"code": "model_not_found", "message": "The model `m` does not exist"}}
    failure = refused(body, 404)
    assert failure.kind is FailureKind.BAD_REQUEST
    assert failure.code == "model_not_found"
    assert "--param model=NAME" in failure.message
