"""Which endpoint an option belongs to: on the command line it binds to the `-m` before it.

Looks at the arguments as they were typed, before they are parsed; must not know what the options mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rowmill.errors import JobError
from rowmill.job.option_table import BY_NAME, NEVER_SHARED, Option, command_options


@dataclass(slots=True)
class _Typed:
    """The options as typed: what stands before the first `-m`, then one entry an `-m`; the rest of the arguments."""

    shared: dict[str, Any] = field(default_factory=dict)
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def bind(arguments: Sequence[str]) -> tuple[list[str], list[dict[str, Any]] | None]:
    """(the arguments that are still to be parsed, the endpoints where there are several).

    With one `-m` or none the order is free and nothing is taken out.  Raises JobError for an option that stands twice,
    and for a URL or a key before the first of several `-m`.
    """
    if not arguments or not any(option.name == "model" for option in command_options(arguments[0])):
        return list(arguments), None
    typed = _read(arguments)
    if len(typed.endpoints) < 2:
        for name in typed.shared.keys() & (typed.endpoints[0] if typed.endpoints else {}).keys():
            _once(BY_NAME[name], not BY_NAME[name].repeatable)
        return list(arguments), None
    crossing = [name for name in NEVER_SHARED if name in typed.shared]
    if crossing:
        flag = BY_NAME[crossing[0]].flag
        raise JobError(f"{flag} stands before the first of several -m; write it after the -m that it is for")
    return typed.rest, [{**typed.shared, **endpoint} for endpoint in typed.endpoints]


def _read(arguments: Sequence[str]) -> _Typed:
    options = {option.flag: option for option in command_options(arguments[0])}
    options |= {option.short: option for option in options.values() if option.short}
    typed = _Typed(rest=[arguments[0]])
    at = 1
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            typed.rest += arguments[at:]
            break
        flag, value, taken = _split(word, options)
        option = options.get(flag)
        if option is None or option.type == "true or false":
            typed.rest.append(word)
            at += 1
            continue
        words = list(arguments[at : at + taken])
        value = value if taken == 1 else (words[1] if len(words) > 1 else "")
        _put(typed, option, value, words)
        at += taken
    return typed


def _split(word: str, options: dict[str, Option]) -> tuple[str, str, int]:
    """(flag, value that stands in the same word, how many words it takes): --flag=value, -fvalue, --flag value."""
    if word.startswith("--") and "=" in word:
        flag, _, value = word.partition("=")
        return flag, value, 1
    if word.startswith("-") and not word.startswith("--") and len(word) > 2 and word[:2] in options:
        return word[:2], word[2:], 1
    return word, "", 2


def _put(typed: _Typed, option: Option, value: str, words: list[str]) -> None:
    """Invariant: a single option stands once; of an endpoint, once an endpoint."""
    if option.name == "model":
        typed.endpoints.append({"model": value})
        return
    if not option.key.startswith("endpoints[]."):
        if not option.repeatable:
            _once(option, option.name in typed.seen)
            typed.seen.add(option.name)
        typed.rest += words
        return
    entry = typed.endpoints[-1] if typed.endpoints else typed.shared
    if option.repeatable:
        entry.setdefault(option.name, []).append(value)
        return
    _once(option, option.name in entry)
    entry[option.name] = _read_value(option, value)


def _once(option: Option, is_there: bool) -> None:
    if is_there:
        raise JobError(f"{option.flag} is given twice; keep one")


def _read_value(option: Option, value: str) -> Any:
    if option.name == "in_flight" and value.isdecimal():
        return int(value)
    if option.type in ("number", "whole number"):
        try:
            return float(value)
        except ValueError:
            raise JobError(f"{option.flag}: {value!r} is not a number") from None
    return value
