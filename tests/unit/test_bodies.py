"""Lines of a batch file become requests, or are refused with a word that helps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from rowmill.core.requests.batch_lines import PATHS, BatchBodies, looks_like_batch
from rowmill.core.requests.prompts import TemplateFault
from rowmill.records import Body, Row

CHAT = {"model": "m", "messages": [{"role": "user", "content": "→ 馬 😀"}]}


def made(
    body: object = CHAT,
    url: object = "/v1/chat/completions",
    params: Mapping[str, object] | None = None,
    **more: object,
) -> Body:
    line = {"custom_id": "a", "method": "POST", "url": url, "body": body, **more}
    request = BatchBodies().request(Row(0, line), params or {})
    assert request.body is not None
    return request.body


def sent(*arguments: Any, **more: Any) -> Any:
    return json.loads(made(*arguments, **more).content)


def refused(**line: Any) -> str:
    with pytest.raises(TemplateFault) as caught:
        made(**line)
    return str(caught.value)


def test_a_body_is_sent_as_it_stands() -> None:
    body = {"z": 1, **CHAT, "seed": 123456789012345678901234, "top_p": Decimal("0.12345678901234567890"), "a": None}
    assert made(body).content == (
        '{"z":1,"model":"m","messages":[{"role":"user","content":"→ 馬 😀"}],"seed":123456789012345678901234,'
        '"top_p":0.12345678901234567890,"a":null}'.encode()
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", ["", "/v1", "/v2"])
def test_every_known_api_is_reached_with_or_without_its_version(path: str, version: str) -> None:
    assert made({"input": "x"}, version + path).path == path


@pytest.mark.parametrize(
    "url", ["/v1/images", "/chat", "v1/chat/completions", "http://evil/v1/chat/completions", "/v1/../files", "", "/v1/"]
)
def test_an_unknown_url_is_refused_naming_those_there_are(url: str) -> None:
    words = refused(url=url)
    assert words.startswith(f"url is '{url}'")
    assert "/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings" in words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"url": None}, "url is missing"),
        ({"url": 7}, "url must be text, not 7"),
        ({"body": None}, "body is missing"),
        ({"body": "x"}, "body must be an object, not 'x'"),
        ({"body": [1]}, "body must be an object, not [1]"),
        ({"method": "GET"}, "method is 'GET'; only POST"),
        ({"method": 1}, "method is 1; only POST"),
        ({"body": {**CHAT, "stream": True}}, "body.stream is set"),
        ({"body": {**CHAT, "background": True}}, "body.background is set"),
        ({"body": {**CHAT, "model": ""}}, "body.model is not the name"),
        ({"body": {**CHAT, "model": 3}}, "body.model is not the name"),
    ],
)
def test_a_line_that_cannot_be_sent_is_refused_with_its_field(line: dict[str, Any], words: str) -> None:
    assert words in refused(**line)


def test_a_long_value_is_shown_short() -> None:
    assert len(refused(url="/" + "x" * 1000)) < 300


@pytest.mark.parametrize("method", ["POST", "post", None])
def test_the_method_may_be_left_out_or_in_small_letters(method: str | None) -> None:
    assert made(method=method).path == "/chat/completions"


def test_a_stream_that_is_not_asked_for_is_no_fault() -> None:
    assert sent({**CHAT, "stream": False})["stream"] is False


def test_parameters_of_the_job_go_over_the_bodies() -> None:
    assert sent({**CHAT, "stream": True, "top_p": 1}, params={"stream": False, "model": "n"}) == {
        **CHAT,
        "stream": False,
        "top_p": 1,
        "model": "n",
    }


@pytest.mark.parametrize(
    ("url", "body", "params", "limits"),
    [
        ("/v1/chat/completions", {}, {"max_tokens": 9}, {"max_tokens": 9}),
        ("/v1/chat/completions", {"max_tokens": 5}, {"max_tokens": 9}, {"max_tokens": 9}),
        ("/v1/chat/completions", {"max_completion_tokens": 5}, {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("/v1/chat/completions", {"max_tokens": 5}, {"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        ("/v1/responses", {"max_output_tokens": 5}, {"max_tokens": 9}, {"max_output_tokens": 9}),
        ("/v1/embeddings", {}, {"max_tokens": 9}, {}),
    ],
)
def test_a_token_limit_of_the_job_takes_the_name_that_limits_there(
    url: str, body: dict[str, Any], params: dict[str, Any], limits: dict[str, Any]
) -> None:
    found = sent({"model": "m", **body}, url, params)
    assert found == {"model": "m", **limits}


@pytest.mark.parametrize(
    ("url", "body", "most"),
    [
        ("/v1/chat/completions", {}, None),
        ("/v1/chat/completions", {"max_tokens": 5}, 5),
        ("/v1/chat/completions", {"max_completion_tokens": 5, "n": 3}, 15),
        ("/v1/completions", {"max_tokens": 5, "prompt": "x"}, 5),
        ("/v1/completions", {"max_tokens": 5, "prompt": ["x", "y"], "best_of": 2}, 20),
        ("/v1/completions", {"max_tokens": 5, "prompt": [1, 2, 3]}, 5),
        ("/v1/completions", {"max_tokens": 5, "prompt": [[1], [2]]}, 10),
        ("/v1/responses", {"max_output_tokens": 7}, 7),
        ("/v1/embeddings", {"input": "x"}, 0),
        ("/v1/rerank", {}, 0),
    ],
)
def test_the_most_tokens_of_all_answers_are_known(url: str, body: dict[str, Any], most: int | None) -> None:
    assert made(body, url).max_tokens == most


def test_a_model_that_is_not_named_is_left_to_the_endpoint() -> None:
    assert made().model == "m"
    assert made({"messages": []}).model is None


def test_a_budget_refuses_what_it_cannot_bound() -> None:
    bodies = BatchBodies(lambda body, values: body if body.max_tokens else "no limit")
    line = {"url": "/v1/chat/completions", "body": CHAT}
    with pytest.raises(TemplateFault, match="no limit"):
        bodies.request(Row(0, line), {})
    assert bodies.request(Row(0, line), {"max_tokens": 3}).body is not None


@pytest.mark.parametrize(
    ("columns", "is_batch"),
    [
        (["custom_id", "method", "url", "body"], True),
        (["custom_id", "url", "body", "x"], True),
        (["custom_id", "body"], False),
        (["text"], False),
        ([], False),
    ],
)
def test_a_batch_file_is_known_by_its_columns(columns: list[str], is_batch: bool) -> None:
    assert looks_like_batch(columns) is is_batch
