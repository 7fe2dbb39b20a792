"""Schemas and shorthand: what they compile to, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rowmill.core.replies.schemas import AnswerSchema, compile_schema
from rowmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping


def value(schema: AnswerSchema, text: str) -> Mapping[str, Any]:
    read = schema.read(text)
    assert not isinstance(read, str), read
    return read


def fault(schema: AnswerSchema, text: str) -> str:
    read = schema.read(text)
    assert isinstance(read, str), read
    return read


def test_shorthand_in_a_line_becomes_a_closed_object() -> None:
    schema = compile_schema("sentiment: positive|negative, confidence: number")
    assert schema.json_schema == {
        "type": "object",
        "properties": {
            "sentiment": {"type": "string", "enum": ["positive", "negative"]},
            "confidence": {"type": "number"},
        },
        "required": ["sentiment", "confidence"],
        "additionalProperties": False,
    }
    assert schema.columns == (("sentiment", "string"), ("confidence", "number"))
    assert schema.strict


@pytest.mark.parametrize(
    "spec",
    [
        {"sentiment": "positive|negative", "confidence": "number"},
        "{sentiment: positive|negative, confidence: number}",
        '{"sentiment": "positive|negative", "confidence": "number"}',
    ],
)
def test_all_spellings_of_shorthand_mean_the_same(spec: Mapping[str, Any] | str) -> None:
    line = compile_schema("sentiment: positive|negative, confidence: number")
    assert compile_schema(spec).json_schema == line.json_schema


@pytest.mark.parametrize(
    ("kind", "part", "column"),
    [
        ("string", {"type": "string"}, "string"),
        ("int", {"type": "integer"}, "integer"),
        ("boolean?", {"type": ["boolean", "null"]}, "boolean"),
        ("1|2|3", {"type": "integer", "enum": [1, 2, 3]}, "integer"),
        ("0.5|1", {"type": "number", "enum": [0.5, 1.0]}, "number"),
        ("yes|2", {"type": "string", "enum": ["yes", "2"]}, "string"),
        ("a|b?", {"type": ["string", "null"], "enum": ["a", "b", None]}, "string"),
        ("list[string]", {"type": "array", "items": {"type": "string"}}, "json"),
        (
            "list[a|b]?",
            {
                "anyOf": [
                    {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                    {"type": "null"},
                ]
            },
            "json",
        ),
    ],
)
def test_every_shorthand_type_is_known(kind: str, part: object, column: str) -> None:
    schema = compile_schema(f"x: {kind}")
    assert schema.json_schema["properties"]["x"] == part
    assert schema.columns == (("x", column),)


def test_mappings_nest_in_a_line_and_in_yaml() -> None:
    line = compile_schema("who: {name: string, tags: list[a|b]}, n: integer")
    assert (
        line.json_schema == compile_schema({"who": {"name": "string", "tags": "list[a|b]"}, "n": "integer"}).json_schema
    )
    assert line.columns == (("who", "json"), ("n", "integer"))


def test_a_field_may_be_called_type() -> None:
    assert compile_schema("type: a|b").columns == (("type", "string"),)


def test_an_optional_field_may_be_marked_at_its_name() -> None:
    assert compile_schema({"who?": {"x": "string"}}).read('{"who": null}') == {"who": None}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("x: strin", "answer.schema.x: unknown type 'strin'; did you mean string"),
        ("x", "'x' is not NAME: TYPE"),
        ("x: string, x: number", "named twice"),
        ("", "no fields"),
        ({"x": True}, "answer.schema.x: True is not a type"),
        ({1: "string"}, "put it in quotes"),
        ({"x": {"y": "what"}}, "answer.schema.x.y: unknown type"),
        ("x: a||b", "empty choice"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, r"\$.properties.a.type"),
        ({"type": "object"}, "no properties"),
        ({"$ref": "https://example.com/schema"}, "answer.schema"),
        ({"$ref": "#/nowhere"}, "answer.schema"),
    ],
)
def test_a_broken_schema_is_refused_with_its_path(spec: Mapping[str, Any] | str, words: str) -> None:
    with pytest.raises(JobError, match=words):
        compile_schema(spec)


REFERENCED = {
    "$defs": {"mood": {"enum": ["good", "bad"]}},
    "type": "object",
    "properties": {
        "mood": {"$ref": "#/$defs/mood"},
        "stars": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
    "required": ["mood"],
}


def test_columns_of_a_json_schema_follow_references_and_nulls() -> None:
    schema = compile_schema(REFERENCED)
    assert schema.columns == (("mood", "string"), ("stars", "integer"), ("either", "json"))
    assert not schema.strict


def test_a_field_that_may_be_missing_reads_as_null() -> None:
    assert compile_schema(REFERENCED).read('{"mood": "good"}') == {
        "mood": "good",
        "stars": None,
        "either": None,
    }


def test_extra_keys_are_as_the_schema_says() -> None:
    assert value(compile_schema(REFERENCED), '{"mood": "bad", "more": 1}')["mood"] == "bad"
    assert "more" in fault(compile_schema("mood: good|bad"), '{"mood": "bad", "more": 1}')


def test_a_schema_whose_root_is_no_object_has_one_column() -> None:
    schema = compile_schema({"type": "array", "items": {"type": "string"}})
    assert schema.columns == (("answer", "json"),)
    assert schema.read('["a"]') == {"answer": ["a"]}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"sentiment": "Positive", "confidence": 1}', "$.sentiment: "),
        ('{"sentiment": "positive", "confidence": "high"}', "$.confidence: "),
        ('{"sentiment": "positive"}', "$: "),
        ('{"sentiment": "positive", "confidence": NaN}', "$: not JSON"),
        ('{"sentiment": "positive", "confidence": 1} and more', "$: not JSON"),
        ("[" * 100_000, "$: not JSON"),
        ("null", "$: "),
    ],
)
def test_faults_name_their_path(text: str, path: str) -> None:
    found = fault(compile_schema("sentiment: positive|negative, confidence: number"), text)
    assert found.startswith(path)
    assert len(found) <= 300


def test_a_whole_float_fits_an_integer_column() -> None:
    assert isinstance(value(compile_schema("n: integer"), '{"n": 3.0}')["n"], int)


def test_large_integers_stay_exact() -> None:
    assert compile_schema("n: integer").read('{"n": 9007199254740993}') == {"n": 9007199254740993}


def test_formats_are_held_to() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"]}
    )
    assert fault(schema, '{"day": "2024-02-30"}').startswith("$.day")
    assert schema.read('{"day": "2024-02-28"}') == {"day": "2024-02-28"}
