"""Replies read as answers: reasoning, fences, cuts, filters, schemas."""

from __future__ import annotations

import pytest

from rowmill.answers import AnswerSchema, compile_schema, read_answer
from rowmill.errors import FailureKind
from rowmill.records import Answer, Failure, Reply

SCHEMA = compile_schema("a: string")


def failed(reply: Reply, schema: AnswerSchema | None = None) -> Failure:
    read = read_answer(reply, schema)
    assert isinstance(read, Failure)
    return read


def test_plain_text_is_kept_exactly() -> None:
    assert read_answer(Reply("  two\n words \n", "stop"), None) == Answer({"answer": "  two\n words \n"})


def test_fields_become_values_in_the_schemas_order() -> None:
    schema = compile_schema("a: string, b: integer")
    answer = read_answer(Reply('{"b": 1, "a": "x"}', "stop"), schema)
    assert isinstance(answer, Answer)
    assert list(answer.values.items()) == [("a", "x"), ("b", 1)]


@pytest.mark.parametrize(
    "reply",
    [
        Reply('<think>\nx\n</think>\n\n{"a":"y"}', "stop"),
        Reply('x</think>{"a":"y"}', "stop"),
        Reply('<thinking>x</thinking>{"a":"y"}', "stop"),
        Reply('{"a":"y"}', "stop", reasoning="x"),
        Reply(None, "stop", reasoning='x</think>{"a":"y"}'),
    ],
)
def test_reasoning_is_split_off_wherever_it_stands(reply: Reply) -> None:
    assert read_answer(reply, SCHEMA) == Answer({"a": "y"}, "x")


def test_an_answer_that_came_as_reasoning_is_the_answer() -> None:
    assert read_answer(Reply(None, "stop", reasoning='{"a":"y"}'), SCHEMA) == Answer({"a": "y"}, None)


def test_plain_text_after_reasoning_starts_at_its_first_letter() -> None:
    assert read_answer(Reply("<think>x</think>\n\ny\n", "stop"), None) == Answer({"answer": "y\n"}, "x")


def test_an_empty_thought_is_no_reasoning() -> None:
    assert read_answer(Reply("<think>\n\n</think>\n\ny", "stop"), None) == Answer({"answer": "y"}, None)


def test_a_tag_inside_a_valid_answer_is_text() -> None:
    assert read_answer(Reply('{"a":"x</think>y"}', "stop"), SCHEMA) == Answer({"a": "x</think>y"}, None)


@pytest.mark.parametrize(
    "text", ['```json\n{"a":"y"}\n```', '```\n{"a":"y"}\n```\n', '  ```JSON {"a":"y"} ```', '```{"a":"y"}```']
)
def test_a_fence_around_the_whole_reply_is_taken_off(text: str) -> None:
    assert read_answer(Reply(text, "stop"), SCHEMA) == Answer({"a": "y"})


def test_a_fence_inside_a_valid_answer_is_text() -> None:
    assert read_answer(Reply('{"a":"```x```"}', "stop"), SCHEMA) == Answer({"a": "```x```"})


def test_a_fence_amid_other_words_is_invalid() -> None:
    assert failed(Reply('Sure:\n```json\n{"a":"y"}\n```', "stop"), SCHEMA).kind is FailureKind.INVALID


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_a_reply_cut_at_the_limit_is_truncated_and_kept(schema: AnswerSchema | None) -> None:
    found = failed(Reply('{"a":"y', "length"), schema)
    assert found.kind is FailureKind.TRUNCATED
    assert found.values == {"answer": '{"a":"y'}


def test_thoughts_cut_at_the_limit_are_truncated_with_the_reasoning() -> None:
    for reply in (Reply(None, "length", reasoning="hm"), Reply("<think>hm", "length")):
        found = failed(reply)
        assert (found.kind, found.values, found.reasoning) == (FailureKind.TRUNCATED, None, "hm")


@pytest.mark.parametrize("finish", ["content_filter", "SAFETY", "sensitive"])
def test_a_filters_finish_reason_is_filtered(finish: str) -> None:
    assert failed(Reply(None, finish)).kind is FailureKind.FILTERED


def test_a_refusal_is_refused_in_the_models_words() -> None:
    found = failed(Reply(None, "stop", refusal="I cannot help."), SCHEMA)
    assert (found.kind, found.message) == (FailureKind.REFUSED, "I cannot help.")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(None, "stop"),
        Reply("", None),
        Reply(" \n", "stop"),
        Reply(None, "tool_calls"),
        Reply("half", "error"),
        Reply("<think>never closed", "stop"),
    ],
)
def test_a_reply_without_text_is_unreadable(reply: Reply) -> None:
    assert failed(reply).kind is FailureKind.UNREADABLE


def test_an_invalid_answer_names_the_place_and_keeps_the_text() -> None:
    found = failed(Reply('{"a": 1}', "stop"), SCHEMA)
    assert found.kind is FailureKind.INVALID
    assert found.message.startswith("$.a: ")
    assert found.excerpt == '{"a": 1}'
    assert found.values is None
