"""Replies read as answers: reasoning, fences, cuts, filters, schemas."""

from __future__ import annotations

import pytest

from rowmill.core.replies.answers import (
    AnswerSchema,
    compile_fallback,
    compile_schema,
    read_answer,
    repair_messages,
    reply_text,
)
from rowmill.errors import FailureKind, JobError
from rowmill.records import Answer, Failure, Message, Reply, Status

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
        Reply("half", "error"),
        Reply("<think>never closed", "stop"),
    ],
)
def test_a_reply_without_text_is_unreadable(reply: Reply) -> None:
    assert failed(reply).kind is FailureKind.UNREADABLE


def test_an_invalid_answer_names_the_path_and_keeps_the_text() -> None:
    found = failed(Reply('{"a": 1}', "stop"), SCHEMA)
    assert found.kind is FailureKind.INVALID
    assert found.message.startswith("$.a: ")
    assert found.excerpt == '{"a": 1}'
    assert found.values is None


ASKED = [Message("system", "Label."), Message("user", "It is fine.")]


def test_a_repair_shows_the_bad_reply_and_its_fault() -> None:
    messages = repair_messages(ASKED, '{"a": 1}', '$.a: 1 is not of type "string"')
    assert list(messages[:2]) == ASKED
    assert messages[2] == Message("assistant", '{"a": 1}')
    assert messages[3].role == "user"
    assert '$.a: 1 is not of type "string"' in messages[3].content


def test_a_second_repair_is_no_longer_than_the_first() -> None:
    repair_messages(ASKED, "bad", "fault")
    assert len(repair_messages(ASKED, "worse", "another fault")) == 4
    assert len(ASKED) == 2


def test_of_an_endless_bad_reply_only_the_start_is_shown_again() -> None:
    shown = repair_messages(ASKED, "x" * 1_000_000, "fault")[2].content
    assert len(shown) < 10_000
    assert shown.endswith("[...]")


def test_a_repair_does_not_show_the_reasoning() -> None:
    assert reply_text(Reply('<think>hm</think>{"a": 1}', "stop")) == '{"a": 1}'
    assert reply_text(Reply(None, "stop")) == ""


def test_a_fallback_becomes_columns_in_the_schemas_order() -> None:
    schema = compile_schema("a: string, b: integer")
    fallback = compile_fallback({"b": 0, "a": "none"}, schema)
    assert list(fallback.values.items()) == [("a", "none"), ("b", 0)]
    assert fallback.statuses == {Status.INVALID}


def test_a_fallback_without_a_schema_is_text() -> None:
    assert compile_fallback("none", None, ["refused"]).values == {"answer": "none"}
    assert compile_fallback({"answer": "none"}, None, ["refused"]).statuses == {Status.REFUSED}


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        ({"a": 1}, SCHEMA, r"answer.fallback does not fit answer.schema: \$\.a"),
        ({}, SCHEMA, "answer.fallback does not fit"),
        ("none", SCHEMA, "answer.fallback does not fit"),
        ({"b": 1}, None, "answer.fallback: must be text"),
    ],
)
def test_a_fallback_that_does_not_fit_is_refused(value: object, schema: AnswerSchema | None, words: str) -> None:
    with pytest.raises(JobError, match=words):
        compile_fallback(value, schema)


def test_a_fallback_never_stands_in_for_failed_rows() -> None:
    with pytest.raises(JobError, match="fallback_for: failed is none of invalid, refused, truncated, filtered"):
        compile_fallback({"a": "x"}, SCHEMA, ["invalid", "failed"])
