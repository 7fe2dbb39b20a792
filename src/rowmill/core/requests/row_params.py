"""Parameters and model of a request where they depend on the row.  It must not know the endpoint that it goes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowmill.core.requests.expressions import compile_value, is_template
from rowmill.core.requests.prompts import Columns, TemplateFault
from rowmill.errors import JobError
from rowmill.records import Row

# Parameters that are numbers in every dialect: a CSV cell is text, and servers refuse "64".
_NUMBERS = frozenset(
    {
        "best_of",
        "frequency_penalty",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "temperature",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)


@dataclass(frozen=True, slots=True)
class RowParams:
    """`of(row)` gives parameters and model (None: the endpoint's own); `columns` are what it uses (None: any)."""

    of: Callable[[Row], tuple[Mapping[str, object], str | None]]
    columns: Columns | None


def compile_row_params(params: Mapping[str, Any], model: str) -> RowParams | None:
    """Compiles parameters and model; None where neither depends on the row.

    Of the numbers that every server takes (`max_tokens`, `temperature`, ...) text is read as a number.  Raises
    JobError for templates that are not valid; `of` raises TemplateFault.
    """
    if not is_template(params) and not is_template(model):
        return None
    make_params, columns = _compiled(params, "params")
    make_model, model_columns = _compiled(model, "model")
    used = None if columns is None or model_columns is None else columns | model_columns
    names_model = is_template(model)

    def of(row: Row) -> tuple[Mapping[str, object], str | None]:
        sent = {name: _number(name, value) for name, value in make_params(row).items() if value is not None}
        if not names_model:
            return sent, None
        named = str(make_model(row) or "").strip()
        if not named:
            raise TemplateFault(f"the model `{model}` is empty for this row")
        return sent, named

    return RowParams(of, used)


def _compiled(value: Any, what: str) -> tuple[Callable[[Row], Any], Columns | None]:
    try:
        return compile_value(value)
    except JobError as error:
        raise JobError(*(f"{what}: {fault}" for fault in error.faults)) from None


def _number(name: str, value: object) -> object:
    if name not in _NUMBERS or not isinstance(value, str):
        return value
    try:
        number = json.loads(value)
    except ValueError:
        number = None
    if isinstance(number, int | float) and not isinstance(number, bool):
        return number
    raise TemplateFault(f"params.{name} must be a number, not {value[:40]!r}")
