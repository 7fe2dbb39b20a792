"""Expressions in the templates' language and a row -> a value: conditions, and parameters that depend on the row.

Data is never evaluated.  It must not know what a value is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import TemplateSyntaxError, Undefined, UndefinedError

from rowmill.core.requests.prompts import (
    Columns,
    advice,
    as_text,
    blame,
    checked_tree,
    compile_template,
    or_null,
    plain,
    sandbox,
    used_columns,
)
from rowmill.core.shortening import shortened
from rowmill.errors import JobError
from rowmill.records import Row

_ONE_EXPRESSION = re.compile(r"\s*\{\{-?((?:(?!\{\{|\}\}).)*?)-?\}\}\s*", re.DOTALL)


def compile_expression(
    text: str, what: str = "--where"
) -> tuple[Callable[[Mapping[str, object]], bool], Columns | None]:
    """Compiles an expression in the templates' language: (row's values -> true or false, columns it uses).

    Raises JobError, naming `what`, for an expression that is not valid; the callable raises JobError for a
    row on which it fails, and shows that row.
    """
    prefix = f"{what}: " if what else ""
    environment = sandbox()
    try:
        evaluate = environment.compile_expression(text, undefined_to_none=False)
        tree = checked_tree("{{ (" + text + "\n) }}")
    except TemplateSyntaxError as error:
        raise JobError(f"{prefix}not a valid expression: {error.message}") from None
    except JobError as error:
        raise JobError(f"{prefix}{error}") from None
    columns = used_columns(tree)

    def holds(values: Mapping[str, object]) -> bool:
        known = {name: or_null(value) for name, value in values.items()}
        try:
            return bool(evaluate({**known, "row": known}))
        except Exception as error:
            shown = as_text({name: values[name] for name in values if columns is None or name in columns})
            words = str(error) or type(error).__name__
            if isinstance(error, UndefinedError):
                words += f"; the row has {', '.join(values)}"
            raise JobError(f"{prefix}fails on the row {shortened(shown, 200)}: {words}{advice(error)}") from None

    return holds, columns


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a value of mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts_of(part)


def is_template(value: object) -> bool:
    """Whether a value, or one inside it, depends on the row."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_template(part) for part in value.values())
    return isinstance(value, list | tuple) and any(is_template(part) for part in value)


def compile_value(value: Any) -> tuple[Callable[[Row], Any], Columns | None]:
    """Compiles a value in which texts may be templates: (row -> value, columns it uses; None: it may use any).

    A text that is one `{{ expression }}` and nothing else gives the expression's value with its type.  Raises
    JobError; the callable raises TemplateFault.
    """
    if isinstance(value, Mapping):
        parts = {name: compile_value(part) for name, part in value.items()}
        return (lambda row: {name: make(row) for name, (make, _) in parts.items()}), _all_columns(*parts.values())
    if isinstance(value, list | tuple):
        items = [compile_value(part) for part in value]
        return (lambda row: [make(row) for make, _ in items]), _all_columns(*items)
    if not isinstance(value, str) or not is_template(value):
        return (lambda row: value), frozenset()
    single = _ONE_EXPRESSION.fullmatch(value)
    if single is None:
        compiled = compile_template(value)
        return compiled.render, compiled.columns
    columns = used_columns(checked_tree(value))
    evaluate = sandbox().compile_expression(single[1], undefined_to_none=False)

    def valued(row: Row) -> Any:
        values = {name: or_null(part) for name, part in row.values.items()}
        try:
            found = evaluate({**values, "row": values, "_row": row.index})
            if isinstance(found, Undefined):
                str(found)  # raises, with the name
            return plain(found)
        except Exception as error:
            blame(error, tuple(row.values))

    return valued, columns


def _all_columns(*parts: tuple[object, Columns | None]) -> Columns | None:
    used: frozenset[str] = frozenset()
    for _, columns in parts:
        if columns is None:
            return None
        used |= columns
    return used
