"""Templates and expressions over rows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.requests.expressions import compile_expression
from rowmill.core.requests.prompts import (
    Prompt,
    TemplateFault,
    as_text,
    compile_prompt,
)
from rowmill.errors import JobError
from rowmill.records import Message, Row


def prompt(*templates: str) -> Prompt:
    return compile_prompt([Message("user", template) for template in templates])


def rendered(template: str, values: Mapping[str, Any], index: int = 0) -> str:
    [message] = prompt(template).render(Row(index, values))
    return message.content


def test_a_prompt_renders_every_message_in_order() -> None:
    made = compile_prompt([Message("system", "You label."), Message("user", "{{ text }}")])
    assert made.render(Row(0, {"text": "hi"})) == (Message("system", "You label."), Message("user", "hi"))


def test_single_braces_are_literal() -> None:
    assert rendered('{"k": {{ text }}} {text} {0}', {"text": "x"}) == '{"k": x} {text} {0}'


HOSTILE = "{x} {{ y }} {% raw %} {# c #} \\frac{a}{b} {{ ''.__class__ }} %s <|endoftext|>"


@pytest.mark.parametrize(
    "template", ["{{ text }}", "{{ text | trim }}", '{{ row["text"] }}', "{% if 1 %}{{ text }}{% endif %}"]
)
def test_data_is_never_evaluated(template: str) -> None:
    assert rendered(template, {"text": HOSTILE}) == HOSTILE


@given(st.text())
def test_any_text_comes_through_unchanged(text: str) -> None:
    assert rendered("<{{ text }}>", {"text": text}) == f"<{text}>"
    assert rendered("<{{ text }}>{% if false %}{% endif %}", {"text": text}) == f"<{text}>"


def test_the_end_of_a_template_is_kept() -> None:
    assert rendered("{{ a }}\n\n", {"a": "x"}) == "x\n\n"


@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize(
    "template",
    [
        "[{{ a }}]",
        "[{{ a | trim }}]",
        "[{{ a | upper }}]",
        "[{{ a ~ '' }}]",
        "[{{ a | string }}]",
        "[{{ row.a | lower }}]",
        "[{{ '%s' | format(a) }}]",
        "[{{ nested.a | title }}]",
        "[{% for part in a %}{{ part }}{% endfor %}]",
    ],
)
def test_null_and_nan_never_show(template: str, missing: object) -> None:
    assert rendered(template, {"a": missing, "nested": {"a": missing}}) == "[]"


def test_null_can_be_tested_for() -> None:
    template = "{% if a is none %}none{% else %}{{ a }}{% endif %}"
    assert rendered(template, {"a": None}) == "none"
    assert rendered(template, {"a": 0}) == "0"
    assert rendered("{{ a or 'nothing' }}", {"a": None}) == "nothing"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (2**70, str(2**70)),
        (1.5, "1.5"),
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+2"), "100"),
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ([2**70, Decimal("0.10"), float("nan")], f"[{2**70},0.10,null]"),
        ({1: True}, '{"1":true}'),
        (b"text", "text"),
        (b"\xff\x00", "/wA="),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2, 3, 4, tzinfo=datetime.UTC), "2024-01-02T03:04:00+00:00"),
        ("007", "007"),
    ],
)
def test_values_have_one_text(value: object, text: str) -> None:
    assert as_text(value) == text
    assert rendered("{{ a }}", {"a": value}) == text
    assert rendered("{{ a }}{% if false %}{% endif %}", {"a": value}) == text


def test_tojson_escapes_nothing_for_html() -> None:
    assert rendered("{{ a | tojson }}", {"a": {"x": "<b>'&", "y": None}}) == '{"x":"<b>\'&","y":null}'


def test_odd_names_are_reached_through_row() -> None:
    values = {"Review Text": "a", "1st": "b", "naïve": "c", "": "d"}
    assert rendered('{{ row["Review Text"] }}{{ row["1st"] }}{{ naïve }}{{ row[""] }}', values) == "abcd"


def test_the_row_has_its_index() -> None:
    assert rendered("{{ _row }}: {{ a }}", {"a": "x"}, index=41) == "41: x"


def test_a_column_called_row_is_reached_through_row() -> None:
    assert rendered('{{ row["row"] }}{{ row["_row"] }}', {"row": "a", "_row": "b"}) == "ab"
    assert prompt('{{ row["row"] }}').columns == frozenset({"row"})


def test_a_column_called_like_a_builtin_is_a_column() -> None:
    assert rendered("{{ range }}{{ dict }}{{ loop }}", {"range": "a", "dict": "b", "loop": "c"}) == "abc"


@pytest.mark.parametrize(
    ("template", "columns"),
    [
        ("nothing", set()),
        ("{{ a }} {{ b }}", {"a", "b"}),
        ('{{ row["odd name"] }}{{ a | upper }}', {"odd name", "a"}),
        ("{{ row.a }}", {"a"}),
        ("{{ _row }}", set()),
        ("{% for x in items %}{{ x }}{{ loop.index }}{% endfor %}", {"items"}),
        ("{% set x = a %}{{ x }}", {"a"}),
        ("{% if a %}{{ b.c }}{% endif %}", {"a", "b"}),
        ("{{ row[a] }}", None),
        ("{{ row }}", None),
        ("{{ row.items() | list }}", None),
        ('{{ row["a"] }}{{ row | tojson }}', None),
    ],
)
def test_the_columns_that_a_template_uses_are_known(template: str, columns: set[str] | None) -> None:
    assert prompt(template).columns == columns


def test_the_columns_of_all_messages_count() -> None:
    assert prompt("{{ a }}", "{{ b }}").columns == frozenset({"a", "b"})
    assert prompt("{{ a }}", "{{ row }}").columns is None


@pytest.mark.parametrize("template", ["{{ txt }}", "{{ txt }}{% if 1 %}{% endif %}", '{{ row["txt"] | upper }}'])
def test_a_missing_column_names_those_there_are(template: str) -> None:
    with pytest.raises(TemplateFault, match=r"the prompt uses the column `txt`; the row has text, id"):
        prompt(template).render(Row(0, {"id": 1, "text": "x"}))


def test_an_unknown_column_is_refused_before_the_run() -> None:
    with pytest.raises(JobError) as caught:
        prompt("{{ txt }}{{ id }}{{ lable }}").check_columns(["id", "label", "text"])
    assert [fault.split(", ")[0] for fault in caught.value.faults] == [
        "the prompt uses the column `lable`; the input has label",
        "the prompt uses the column `txt`; the input has text",
    ]


def test_unknown_columns_are_refused_at_compiling_where_the_input_is_known() -> None:
    with pytest.raises(JobError, match=r"`b`; the input has a"):
        compile_prompt([Message("user", "{{ b }}")], ["a"])


def test_a_column_is_missing_even_when_other_templates_take_any() -> None:
    with pytest.raises(JobError, match="`b`"):
        prompt("{{ row }}", "{{ b }}").check_columns(["a"])


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ text.__class__.__mro__ }}",
        "{{ text['__class__'] }}",
        "{{ text | attr('__class__') }}",
        "{{ [text] | map(attribute='__class__') | list }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_a_template_that_reaches_for_what_is_hidden_is_refused(template: str) -> None:
    with pytest.raises(JobError):
        prompt(template)


@pytest.mark.parametrize(
    "template", ["{{ '{0.__class__}'.format(text) }}", "{% set a = '__cla' ~ 'ss__' %}{{ text[a] }}"]
)
def test_what_is_hidden_stays_hidden_while_rendering(template: str) -> None:
    with pytest.raises(TemplateFault):
        prompt(template).render(Row(0, {"text": "x"}))


def test_a_template_cannot_change_the_row() -> None:
    with pytest.raises(TemplateFault):
        prompt("{{ items.append(1) }}").render(Row(0, {"items": []}))


def test_a_syntax_error_names_the_message_and_the_line() -> None:
    with pytest.raises(JobError, match=r"user message: line 2 of the template: .*single braces are literal"):
        prompt("fine\n{{ text }")


def test_a_comment_sign_is_explained() -> None:
    with pytest.raises(JobError, match="begins a comment"):
        prompt("{#1 never closed")


def test_whatever_a_template_raises_is_a_fault_of_the_row() -> None:
    with pytest.raises(TemplateFault, match="cannot be rendered"):
        prompt("{{ 1 / n }}").render(Row(0, {"n": 0}))


def test_text_compared_with_a_number_is_explained() -> None:
    with pytest.raises(TemplateFault, match=r"cells of a CSV file are text"):
        prompt("{% if n > 3 %}{% endif %}").render(Row(0, {"n": "4"}))


@pytest.mark.parametrize(
    ("values", "blank"),
    [
        ({"a": "", "b": None}, True),
        ({"a": " \n", "b": float("nan")}, True),
        ({}, True),
        ({"a": "x", "b": None}, False),
        ({"a": 0, "b": None}, False),
    ],
)
def test_a_row_is_blank_when_every_column_used_is(values: dict[str, Any], blank: bool) -> None:
    assert prompt("{{ a }}{{ b }}").is_blank(Row(0, values)) is blank


def test_a_prompt_without_columns_is_never_blank() -> None:
    assert prompt("tell a joke").is_blank(Row(0, {"a": ""})) is False


def holds(expression: str, values: Mapping[str, Any]) -> bool:
    check, _ = compile_expression(expression)
    return check(values)


def test_an_expression_chooses_rows() -> None:
    assert holds("lang == 'en' and row['Word Count'] | int > 3", {"lang": "en", "Word Count": "4"})
    assert not holds("lang == 'en'", {"lang": "zh"})
    assert holds("note is none", {"note": None})


def test_the_columns_of_an_expression_are_known() -> None:
    assert compile_expression("a and row['b']")[1] == frozenset({"a", "b"})
    assert compile_expression("row | length > 3")[1] is None


@pytest.mark.parametrize("expression", ["a ==", "a }} {{ b", "x) or (y", "", "a.__class__", "{% if a %}"])
def test_an_expression_that_is_none_is_refused(expression: str) -> None:
    with pytest.raises(JobError, match=r"^--where: "):
        compile_expression(expression)


def test_a_row_on_which_an_expression_fails_is_shown() -> None:
    with pytest.raises(JobError, match=r'--where: fails on the row \{"n":"4"\}: .*cells of a CSV file are text'):
        holds("n > 3", {"n": "4", "other": "x"})


def test_an_expression_over_a_missing_column_names_those_there_are() -> None:
    with pytest.raises(JobError, match=r"'m' is undefined; the row has n, other"):
        holds("m == 3", {"n": "4", "other": "x"})


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * text }}",
        "{{ [1] * 10**9 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ text | center(10**9) }}",
        "{{ text.ljust(10**9) }}",
        "{{ text | indent(10**9) }}",
        "{{ ('a' * 10000000) | replace('a', 'b' * 10000000) }}",
        "{{ ('a' * 10000000).replace('a', 'b' * 10000000) }}",
    ],
)
def test_a_template_that_would_make_a_gigabyte_is_refused_at_its_row_at_once(template: str) -> None:
    prompt = compile_prompt([Message("user", template)])
    with pytest.raises(TemplateFault, match="10,000,000 characters"):
        prompt.render(Row(0, {"text": "abc"}))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ '=' * 3 }}", "==="),
        ("{{ '%d' % 12345678901 }}", "12345678901"),
        ("{{ '{}'.format(12345678901) }}", "12345678901"),
        ("{{ 12345678901 | default(3) }}", "12345678901"),
        ("{{ 2 ** 40 }}", "1099511627776"),
        ("{{ text | center(5) }}", " abc "),
        ("{{ text | replace('b', 'xy') }}", "axyc"),
    ],
)
def test_bounded_operations_give_what_they_always_gave(template: str, text: str) -> None:
    assert compile_prompt([Message("user", template)]).render(Row(0, {"text": "abc"}))[0].content == text


@pytest.mark.parametrize(
    ("template", "hole"),
    [
        ("{{ my-text }}", "{{ row['my-text'] }}"),
        ("{{ my text }}", "{{ row['my text'] }}"),
        ("{{ 2nd }}", "{{ row['2nd'] }}"),
        ("{{ size.x }}", "{{ row['size.x'] }}"),
        ("{{ label }}", "{{ Label }}"),
        ("{{ labell }}", "{{ Label }}"),
    ],
)
def test_a_column_with_an_odd_name_is_shown_as_a_template_writes_it(template: str, hole: str) -> None:
    columns = ["id", "my-text", "my text", "2nd", "size.x", "Label"]
    with pytest.raises(JobError) as refused:
        compile_prompt([Message("user", template)], columns)
    assert hole in str(refused.value)
    row = Row(0, dict.fromkeys(columns, "x"))
    assert compile_prompt([Message("user", hole)], columns).render(row)[0].content == "x"


def test_a_name_that_is_like_none_gets_no_suggestion() -> None:
    with pytest.raises(JobError, match=r"the input has a, b$"):
        compile_prompt([Message("user", "{{ quite_other }}")], ["a", "b"])
