"""The environment that templates and expressions are compiled in: no names but the row's, nulls that print as nothing,
and no operation that a few characters make take a gigabyte.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARACTERS = 10_000_000
MOST_BITS = 100_000
_WIDTH = re.compile(r"\d{7,}")
_NESTED = re.compile(r"\{[^{}]*\{")
_OF_WIDTHS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "indent", "batch", "slice"})


class TooLargeError(ValueError):
    """A template's operation would make more than any request can hold."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose operators, methods and filters refuse to make more than `MOST_CHARACTERS`."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operator on two values; raises TooLargeError."""
        if operator == "*":
            _check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *arguments: Any, **keywords: Any) -> Any:
        """A method's call; raises TooLargeError."""
        method = getattr(function, "__wrapped__", function)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_made(method.__name__, owner, (*arguments, *keywords.values()))
        return super().call(context, function, *arguments, **keywords)

    def bound_filters(self) -> None:
        """Has every filter check what it is given."""
        for name, made in list(self.filters.items()):
            self.filters[name] = _bounded(name, made)


def _bounded(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(made)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        texts = [at for at, argument in enumerate(arguments) if isinstance(argument, str)]
        at = texts[0] if texts else 0
        _check_made(name, arguments[at] if texts else "", (*arguments[at + bool(texts) :], *keywords.values()))
        return made(*arguments, **keywords)

    return checked


def _check_made(name: str, text: str, arguments: Sequence[Any]) -> None:
    """What a method or a filter of this name would make of a text."""
    if name in _OF_WIDTHS and any(isinstance(one, int) and one > MOST_CHARACTERS for one in arguments):
        raise _too_large()
    if name in ("format", "format_map"):
        _check_format(text, arguments)
    elif name in ("replace", "join", "translate"):
        longest = max((len(one) for one in arguments if isinstance(one, str)), default=0)
        if (len(text) + 1) * longest > MOST_CHARACTERS:
            raise _too_large()


def _check_format(text: str, arguments: Sequence[Any]) -> None:
    """Widths stand in a format, or where it says so among what is formatted."""
    takes_widths = "*" in text or _NESTED.search(text) is not None
    if _WIDTH.search(text) or (
        takes_widths and any(isinstance(one, int) and one > MOST_CHARACTERS for one in arguments)
    ):
        raise _too_large()


def _check_product(left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        is_sequence = isinstance(times, int) and isinstance(value, str | bytes | list | tuple)
        if is_sequence and len(value) * times > MOST_CHARACTERS:
            raise _too_large()
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MOST_BITS:
        raise _too_large()


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 1) > MOST_BITS:
        raise _too_large()


def _too_large() -> TooLargeError:
    return TooLargeError(f"it would make more than {MOST_CHARACTERS:,} characters")
