"""Parameters and models that depend on the row."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.core.requests.prompts import TemplateFault
from rowmill.core.requests.row_params import compile_row_params
from rowmill.records import Row


def sent(params: dict[str, Any], model: str = "m", **values: object) -> tuple[Any, str | None]:
    made = compile_row_params(params, model)
    assert made is not None
    return made.of(Row(3, values))


def test_what_does_not_depend_on_the_row_needs_no_address() -> None:
    assert compile_row_params({"temperature": 0, "stop": ["x"], "user": "{literal}"}, "m") is None


def test_a_single_expression_keeps_its_type() -> None:
    assert sent({"top_k": "{{ n }}", "logit_bias": "{{ bias }}"}, n=4, bias={"a": 1}) == (
        {"top_k": 4, "logit_bias": {"a": 1}},
        None,
    )


def test_text_around_an_expression_makes_text() -> None:
    assert sent({"user": "u-{{ n }}"}, n=4) == ({"user": "u-4"}, None)


def test_a_number_in_a_cell_of_text_is_sent_as_a_number() -> None:
    assert sent({"max_tokens": "{{ n }}", "user": "{{ n }}"}, n="64") == ({"max_tokens": 64, "user": "64"}, None)


def test_a_cell_that_is_no_number_fails_its_row() -> None:
    with pytest.raises(TemplateFault, match=r"params\.max_tokens must be a number, not 'many'"):
        sent({"max_tokens": "{{ n }}"}, n="many")


def test_an_empty_cell_leaves_the_parameter_out() -> None:
    assert sent({"seed": "{{ n }}", "top_p": 0.5}, n=None) == ({"top_p": 0.5}, None)


def test_templates_stand_inside_lists_and_mappings() -> None:
    assert sent({"stop": ["{{ a }}", "x"], "extra": {"k": "{{ _row }}"}}, a="END") == (
        {"stop": ["END", "x"], "extra": {"k": 3}},
        None,
    )


def test_the_model_may_be_the_rows() -> None:
    assert sent({}, "{{ m }}", m="small") == ({}, "small")
    with pytest.raises(TemplateFault, match="is empty for this row"):
        sent({}, "{{ m }}", m="")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TemplateFault, match="`m`"):
        sent({}, "{{ m }}", other=1)


def test_the_columns_that_are_used_are_known() -> None:
    made = compile_row_params({"stop": ["{{ a }}"], "user": "{{ row['odd name'] }}"}, "{{ m }}")
    assert made is not None
    assert made.columns == frozenset({"a", "odd name", "m"})


def test_data_is_never_evaluated() -> None:
    assert sent({"user": "{{ a }}"}, a="{{ 7 * 6 }}") == ({"user": "{{ 7 * 6 }}"}, None)
