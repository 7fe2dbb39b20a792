"""What kinds of values Python's arguments take, where the job would not say it by the argument's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from rowmill.errors import JobError


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_prompt(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(turn, Mapping) for turn in value)
    )


def _is_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value))


def _is_named_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "prompt": (_is_prompt, "a text with {{ column }} in it, or a list of messages ({'user': '...'})"),
    "model": (_is_names, "a name, or a list of names"),
    "answer": (lambda value: not isinstance(value, FunctionType), "a schema, shorthand text, or a class with fields"),
    "params": (_is_mapping, "a mapping of parameters to values"),
    "headers": (_is_named_texts, "a mapping of names to '$VARIABLE'"),
    "price": (_is_mapping, "a mapping: input, output, unit"),
    "http": (_is_mapping, "a mapping: body, answer"),
    "expect": (_is_mapping, "a mapping of answer fields to columns"),
    "fresh": (_is_flag, "True or False"),
    "progress": (_is_flag, "True or False"),
    "approve": (callable, "a function that is given a quote"),
}


def check_kinds(given: Mapping[str, Any]) -> None:
    """Raises JobError for values of a kind that an argument does not take, with what it takes."""
    faults = []
    for name, (is_right, words) in _KINDS.items():
        value = given.get(name)
        if value is not None and not is_right(value):
            faults.append(f"{name}: must be {words}, not {_kind_of(value)}")
    if faults:
        raise JobError(*faults)


def _kind_of(value: object) -> str:
    return "a function" if isinstance(value, FunctionType) else f"{type(value).__name__} ({str(value)[:40]})"
