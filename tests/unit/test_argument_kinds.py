"""Python's arguments of a wrong kind are refused by name, in words."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.api.options import RunOptions, make_job
from rowmill.errors import JobError

GOOD: dict[str, Any] = {"prompt": "{{ text }}", "model": "m", "url": "http://127.0.0.1:1/v1", "output": "o.jsonl"}
ODD = [lambda row: row, 3.5, object(), b"x", {1: 2}, [1], {"a"}]


NAMES = sorted({*RunOptions.__annotations__, "prompt", "model", "output"} - {"fallback", "on_change"})


def refusal(name: str, value: Any) -> str | None:
    """What is said to a value, None where it is taken."""
    try:
        make_job("in.csv", {**GOOD, name: value})
    except JobError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_a_value_of_any_kind_is_taken_or_refused_in_words(name: str, value: Any) -> None:
    said = refusal(name, value)
    if said is not None:
        assert name in said
        assert not [words for words in ("not iterable", "has no attribute", "object is not") if words in said]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("prompt", lambda row: row, "prompt: must be a text with {{ column }} in it"),
        ("model", 3, "model: must be a name, or a list of names, not int"),
        ("params", [1], "params: must be a mapping"),
        ("headers", {1: 2}, "headers: must be a mapping of names"),
        ("answer", lambda row: row, "answer: must be a schema"),
        ("fresh", "yes", "fresh: must be True or False"),
    ],
)
def test_what_an_argument_takes_is_said(name: str, value: Any, words: str) -> None:
    with pytest.raises(JobError) as refused:
        make_job("in.csv", {**GOOD, name: value})
    assert words in str(refused.value)


def test_several_paths_are_one_source() -> None:
    assert make_job(["a.csv", "b.csv"], GOOD).source == "a.csv\nb.csv"
