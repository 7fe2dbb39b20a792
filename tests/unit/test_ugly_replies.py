"""Replies as they should not be: each is read in time that grows as it does, and half a character costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from rowmill.core.replies.answers import compile_schema, read_answer
from rowmill.core.replies.failures import classify, excerpt
from rowmill.core.replies.html import without_tags
from rowmill.core.replies.reading import read_reply
from rowmill.core.replies.surrogates import without_lone_surrogates
from rowmill.errors import FailureKind
from rowmill.providers.openai import read_completion
from rowmill.records import Answer, Failure, RawReply, Reply

SCHEMA = compile_schema("label: yes|no")


def typed(text: str) -> object:
    return read_answer(Reply(text), SCHEMA)


def page(text: str) -> object:
    return excerpt(("<html>" + text).encode())


def error(text: str) -> object:
    return classify(400, {}, msgspec.json.encode({"error": {"message": text}}), now=0.0)


# Text of the given size -> what could make a reader go over it again and again.
ADVERSARIAL: dict[str, Callable[[int], str]] = {
    "a fence and spaces": lambda size: "```" + " " * size + "x",
    "a fence and line breaks": lambda size: "```\n" + "\n" * size + "x",
    "fences": lambda size: "```\n" * (size // 4) + "x",
    "thoughts that never end": lambda size: "<think>" * (size // 7),
    "ends of thoughts": lambda size: "</think>" * (size // 8),
    "spaces before a thought": lambda size: " " * size + "<think",
    "braces": lambda size: "{" * size,
    "brackets and quotes": lambda size: '["' * (size // 2),
    "half characters": lambda size: '"' + "\\ud83d" * (size // 6) + '"',
    "backslashes": lambda size: '"' + "\\" * size + '\\ud800"',
    "scripts": lambda size: "<script" * (size // 7),
    "comments": lambda size: "<!--" * (size // 4),
    "less than": lambda size: "<" * size,
    "context": lambda size: "context length " * (size // 15),
    "models": lambda size: "model " * (size // 6),
}


@pytest.mark.parametrize("read", [typed, page, error], ids=["answer", "page", "error"])
@pytest.mark.parametrize("make", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_a_reader_is_linear_in_its_reply(make: Callable[[int], str], read: Callable[[str], object]) -> None:
    small, large = make(200_000), make(800_000)
    # Four times the size takes 4 times as long where it is linear, 16 where quadratic; the best of several counts.
    ratios = []
    for _ in range(5):
        ratios.append((cost_s(read, large) + 1e-3) / (cost_s(read, small) + 1e-3))
        if min(ratios) < 8:
            return
    raise AssertionError(f"four times the size took {min(ratios):.1f} times the time")


def cost_s(read: Callable[[str], object], text: str) -> float:
    began_s = time.process_time()
    read(text)
    return time.process_time() - began_s


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('```json\n{"label": "yes"}\n```', "yes"),
        ('\n ``` \r\n{"label": "no"}```  ', "no"),
        ('```{"label": "no"}```', "no"),
        ('{"label": "no"}', "no"),
    ],
)
def test_a_fence_around_the_whole_reply_is_taken_off(text: str, label: str) -> None:
    read = typed(text)
    assert isinstance(read, Answer)
    assert read.values == {"label": label}


@pytest.mark.parametrize("text", ["```", "`````", "``````", '```json\n{"label": "yes"}', 'x```{"label": "yes"}```'])
def test_half_a_fence_is_no_fence(text: str) -> None:
    assert isinstance(typed(text), Failure)


class Chat:
    """A provider that only reads."""

    def read(self, raw: RawReply) -> Reply | Failure:
        return read_completion(raw)


def completion(content: bytes) -> RawReply:
    return RawReply(200, {}, b'{"choices": [{"message": {"content": "%s"}, "finish_reason": "stop"}]}' % content, 0.1)


def test_half_a_character_in_a_reply_becomes_a_replacement_character() -> None:
    read = read_reply(Chat(), completion(rb"a\ud83d b"))  # type: ignore[arg-type]
    assert isinstance(read, Reply)
    assert read.text == "a\ufffd b"


def test_half_a_character_in_a_typed_answer_becomes_one_too() -> None:
    read = read_answer(Reply(r'{"text": "a\ud83d b"}'), compile_schema("text: string"))
    assert isinstance(read, Answer)
    assert read.values == {"text": "a\ufffd b"}


@pytest.mark.parametrize("json", [rb'"\ud83d\ude00"', rb'"\\ud83d"', b'"plain"', rb'"\u00e9"'])
def test_whole_characters_and_escaped_backslashes_stay(json: bytes) -> None:
    assert without_lone_surrogates(json) is json


def test_a_reply_that_calls_a_tool_is_not_asked_for_again() -> None:
    read = read_answer(Reply(None, "tool_calls"), None)
    assert isinstance(read, Failure)
    assert read.kind is FailureKind.INVALID
    assert read.retry is False


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (b"<h1>Bad</h1> gateway", b"Bad gateway"),
        (b"<style>a{}</style>x<script>if (a<b) {}</script >y", b"x y"),
        (b"a<!-- <b> -->b", b"a b"),
        (b"a < b", b"a < b"),
        (b"a<!-- open", b"a<!-- open"),
    ],
)
def test_tags_are_taken_out_of_a_page(html: bytes, text: bytes) -> None:
    assert b" ".join(without_tags(html).split()) == text
