"""Servers of no known kind: bodies made from templates, answers found by their paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rowmill.core.replies.answers import AnswerSchema, compile_schema, read_answer
from rowmill.errors import FailureKind, JobError
from rowmill.providers.credentials import Credentials
from rowmill.providers.custom_http import HttpProvider, HttpShape, find, parse_path
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Failure, Message, RawReply, Reply, Request, Usage

ASKED = [Message("system", "Be brief."), Message("user", 'Say "hi" in {braces} and {{ holes }}\n馬')]
FEW_SHOT = [
    Message("system", "Label."),
    Message("user", "I love it."),
    Message("assistant", "positive"),
    Message("user", "It broke."),
]


class Silent:
    """A transport that must not be used."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        raise AssertionError

    async def close(self) -> None: ...


def provider(schema: AnswerSchema | None = None, **shape: Any) -> HttpProvider:
    endpoint = resolve("http/m", "http://h/generate")
    credentials = Credentials(endpoint, environment={})
    return HttpProvider(Silent(), endpoint, credentials, schema, shape=HttpShape(**shape))


def made(shape: object, messages: list[Message] = ASKED, schema: AnswerSchema | None = None, **params: object) -> Any:
    return json.loads(provider(schema, body=shape).body(Request(messages, params)))


def read(body: object, **shape: Any) -> Reply | Failure:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return provider(**shape).read(RawReply(200, {}, text, 0.1))


def test_the_address_stays_as_it_is_given() -> None:
    assert provider().endpoint.url == "http://h/generate"


def test_without_a_template_the_prompt_and_the_parameters_are_sent() -> None:
    found = json.loads(provider().body(Request(ASKED, {"max_tokens": 9})))
    assert found == {"prompt": f"Be brief.\n\n{ASKED[1].content}", "max_tokens": 9}


def test_a_body_keeps_its_shape_and_data_is_never_evaluated() -> None:
    found = made({"input": {"text": "Q: {{ user }}", "n": 1, "flags": [True, None, "{{ model }}"]}})
    assert found == {"input": {"text": f"Q: {ASKED[1].content}", "n": 1, "flags": [True, None, "m"]}}


def test_a_name_alone_gives_its_value() -> None:
    found = made({"chat": "{{ messages }}", "options": "{{ params }}", "s": "{{system}}"}, temperature=0.5)
    assert found["chat"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED[1].content}]
    assert (found["options"], found["s"]) == ({"temperature": 0.5}, "Be brief.")


def test_parameters_go_where_the_body_puts_them_and_nowhere_else() -> None:
    found = made({"q": "{{ prompt }}", "limit": "{{ params.max_tokens }}"}, max_tokens=9, temperature=0)
    assert set(found) == {"q", "limit"}
    assert found["limit"] == 9


def test_examples_become_marked_turns_of_one_text() -> None:
    assert made({"p": "{{ prompt }}"}, FEW_SHOT)["p"] == (
        "Label.\n\nUser: I love it.\n\nAssistant: positive\n\nUser: It broke.\n\nAssistant:"
    )


def test_a_schema_is_asked_for_in_words() -> None:
    prompt = made({"p": "{{ prompt }}"}, schema=compile_schema("a: yes|no"))["p"]
    assert "matches this schema" in prompt
    assert '"enum":["yes","no"]' in prompt


def test_a_value_that_the_body_needs_and_the_row_lacks_is_a_template_failure() -> None:
    shaped = provider(body={"p": "{{ prompt }} in {{ params.language }}"})
    found = asyncio.run(shaped.send(Request(ASKED, {}), 1.0))
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TEMPLATE
    assert "language" in found.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"a": {"b": ["{{ nonesuch }}"]}}, r"body\.a\.b\[0\]: .*nonesuch.*prompt"),
        ({"a": "{{ prompt"}, r"body\.a: "),
        ({"a": "{{ prompt.__class__ }} x"}, r"body\.a: .*__class__"),
    ],
)
def test_a_body_that_cannot_be_rendered_is_refused_at_once(body: object, words: str) -> None:
    with pytest.raises(JobError, match=words):
        provider(body=body)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("text", ("text",)),
        ("$.output.text", ("output", "text")),
        ("data[0].text", ("data", 0, "text")),
        ("[0].generated_text", (0, "generated_text")),
        ('a["odd.name"][12]', ("a", "odd.name", 12)),
        ("答案", ("答案",)),
    ],
)
def test_a_path_is_read(path: str, steps: tuple[object, ...]) -> None:
    assert parse_path(path) == steps


@pytest.mark.parametrize("path", ["", "$", "a[", "a[-1]", "a..b", "a[*]"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(JobError, match="is not a path like"):
        provider(answer=path)


@pytest.mark.parametrize("path", [("b",), ("a", 1), ("a", "b"), (0,), ("a", 0, "x")])
def test_what_is_not_there_is_not_found(path: tuple[str | int, ...]) -> None:
    assert find({"a": ["text"]}, path) == (None, False)


def test_answer_usage_finish_and_reasoning_stand_where_the_paths_say() -> None:
    body = {"out": [{"text": "hi", "why": "so"}], "stats": {"in": 12, "out": 3}, "end": "length"}
    found = read(
        body,
        answer="out[0].text",
        reasoning="out[0].why",
        finish="end",
        input_tokens="stats.in",
        output_tokens="stats.out",
    )
    assert found == Reply("hi", "length", "so", None, Usage(12, 3))


@pytest.mark.parametrize("count", ["12", None, -1, True, 1.5])
def test_a_count_that_is_none_is_unknown(count: object) -> None:
    found = read({"a": "hi", "n": count}, answer="a", input_tokens="n")
    assert isinstance(found, Reply)
    assert found.usage == Usage()


def test_an_answer_that_is_an_object_is_held_to_the_schema() -> None:
    found = read({"result": {"a": "yes"}}, answer="result")
    assert isinstance(found, Reply)
    assert read_answer(found, compile_schema("a: yes|no")) == Answer({"a": "yes"})


def test_without_a_path_the_whole_reply_is_the_answer() -> None:
    found = read("plain 馬".encode())
    assert isinstance(found, Reply)
    assert found.text == "plain 馬"


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"", b"\xff", {"other": "x"}, ["x"]])
def test_a_reply_without_the_answer_is_unreadable(body: object) -> None:
    found = read(body, answer="a.b")
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREADABLE


def test_the_failure_names_the_path_of_the_answer() -> None:
    found = read({"other": "x"}, answer="a.b")
    assert isinstance(found, Failure)
    assert "a.b" in found.message


def test_error_statuses_count_as_everywhere() -> None:
    found = provider(answer="a").read(RawReply(429, {"retry-after": "3"}, b"slow down", 0.1))
    assert isinstance(found, Failure)
    assert (found.kind, found.retry_after_s) == (FailureKind.THROTTLED, 3.0)
