from __future__ import annotations

import collections
import datetime
import enum
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from pydantic import BaseModel, RootModel, field_validator

from rowmill.core.rows import codec


class Colour(enum.Enum):
    RED = 1


class Model(BaseModel):
    name: str
    parts: list[Model] = []
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()
    length: float = field(init=False, default=0.0)


class Pair(NamedTuple):
    left: int
    right: Any


class Names(dict[str, int]):
    pass


class Odd(str):
    """A subclass of text."""


class Choosy(str):
    def __new__(cls, text: str, tag: int = 0) -> Choosy:
        if not tag:
            raise TypeError("a tag is needed")
        return str.__new__(cls, text)


class Holder(BaseModel):
    message: BaseMessage
    name: Any


class Secretive(BaseModel):
    name: str
    _count: int = 0


class Root(RootModel[dict[str, int]]):
    pass


class Splitting(BaseModel):
    words: Any

    @field_validator("words", mode="before")
    @classmethod
    def _split(cls, words: Any) -> Any:
        return [words] if isinstance(words, list) else words.split()


class Level(enum.IntEnum):
    LOW = 1


VALUES = [
    None,
    1 << 80,
    float("inf"),
    "half \ud83d a pair",
    {"a": [1, {"b": (2, 3)}]},
    {1: "one", (2,): {"$rowmill": "no tag"}},
    {"$rowmill": "float", "value": "a dict of the caller's"},
    b"\x00\xff",
    {1, 2},
    frozenset({"a"}),
    datetime.datetime(2024, 5, 1, 12, 30, tzinfo=datetime.UTC),
    datetime.date(2024, 5, 1),
    datetime.time(1, 2, 3, 4),
    datetime.timedelta(days=-1, microseconds=7),
    Decimal("1.10"),
    Colour.RED,
    Level.LOW,
    Pair(1, Pair(2, None)),
    Names(a=1),
    Odd("text"),
    {"a": [Odd("text")]},
    AIMessage("yes").text,
    Model(name="a", parts=[Model(name="b")]),
    Point(1, ("a",)),
    [HumanMessage("hi"), AIMessage("yo", tool_calls=[ToolCall(name="f", args={"x": 1}, id="1")])],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_the_same_value_of_the_same_type(value: Any) -> None:
    again = codec.decode(codec.encode(value))
    assert again == value
    assert type(again) is type(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(json_values)
def test_any_json_value_comes_back(value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


def test_json_stands_as_it_is() -> None:
    value = {"text": "→ 馬", "n": [1, 2.5, None]}
    assert json.loads(codec.encode(value)) == value
    assert "→ 馬".encode() in codec.encode(value)


def test_not_a_number_comes_back() -> None:
    assert math.isnan(codec.decode(codec.encode(float("nan"))))


def test_a_subclass_of_text_can_be_read_by_people() -> None:
    text = AIMessage("yes").text
    assert type(text) is not str
    shown = codec.readable(codec.encode(text).decode())
    assert shown is not None
    assert shown["answer"] == "yes"
    again = codec.decode_readable(shown)
    assert (again, type(again)) == (text, type(text))


@pytest.mark.parametrize("value", ["yes", {"a": 1}, Level.LOW, Names(a=1)], ids=repr)
def test_other_values_are_as_readable_as_they_are(value: Any) -> None:
    assert codec.readable(codec.encode(value).decode()) is None
    assert codec.decode_readable({"answer": json.loads(codec.encode(value))}) == value


@pytest.mark.parametrize("value", [{3, 1, 2, 10}, {"a": frozenset({"x", "y", (1, None)})}, float("nan")])
def test_equal_values_are_written_alike(value: Any) -> None:
    assert codec.encode_proven(value) == codec.encode(codec.decode(codec.encode(value)))


def test_the_parts_of_a_model_keep_their_own_class() -> None:
    again = codec.decode(codec.encode_proven(Holder(message=AIMessage("x"), name=Odd("y"))))
    assert (type(again.message), type(again.name)) == (AIMessage, Odd)


def test_private_attributes_and_roots_come_back() -> None:
    model = Secretive(name="a")
    model._count = 7
    again = codec.decode(codec.encode_proven(model))
    assert (again, again._count) == (model, 7)
    assert codec.decode(codec.encode_proven(Root({"a": 1}))) == Root({"a": 1})


def test_a_field_that_init_does_not_take_comes_back() -> None:
    point = Point(3)
    object.__setattr__(point, "length", 9.0)
    assert codec.decode(codec.encode(point)).length == 9.0


def local_class() -> Any:
    @dataclass
    class Local:
        x: int

    return Local(1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "is of type builtins.object, which a run file cannot hold"),
        ({"a": [1, print]}, r"\.a\[1\] is of type builtins\.builtin_function_or_method"),
        (local_class(), "cannot be found again by its name"),
    ],
)
def test_what_cannot_come_back_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(codec.CodecError, match=message):
        codec.encode(value)


def with_attributes() -> Odd:
    text = Odd("text")
    text.note = "lost"  # type: ignore[attr-defined]
    return text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Choosy("x", 1), "a tag is needed"),
        ({"deep": [Choosy("x", 1)]}, "a tag is needed"),
        (collections.defaultdict(int, a=1), "cannot be read"),
        (with_attributes(), r"is a Odd with attributes \(note\)"),
        (Splitting(words="a b"), "does not come back as it was"),
    ],
    ids=repr,
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, message: str) -> None:
    with pytest.raises(codec.CodecError, match=message):
        codec.encode_proven(value)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(codec.CodecError, match="nested too deeply"):
        codec.encode(endless)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"$rowmill": "model", "class": "no.such:Thing", "value": {}}', "not there any more"),
        ('{"$rowmill": "dataclass", "class": "tests.unit.test_codec:Point", "value": {"z": 1}}', "class of today"),
        ('{"$rowmill": "model", "class": "builtins:print", "value": {}}', "is marked model"),
    ],
)
def test_a_stored_value_whose_class_is_gone_or_another_is_an_error(text: str, message: str) -> None:
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(text.replace("tests.unit.test_codec", __name__))
