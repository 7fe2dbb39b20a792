"""JSON in and out keeps every value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.rows.chunks import decode_json, encode_json

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    again = decode_json(encode_json(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "text", [b"18446744073709551617", b"-9223372036854775809", b"12345678901234567890123456789012345678901"]
)
def test_integers_beyond_64_bits_are_exact(text: bytes) -> None:
    assert encode_json(decode_json(text)) == text


@pytest.mark.parametrize("text", ["1e400", "0.12345678901234567890123", "1e-400", "123456789012345678.5"])
def test_a_number_that_a_float_would_change_is_a_decimal(text: str) -> None:
    value = decode_json(text)
    assert value == Decimal(text)
    assert decode_json(encode_json(value)) == value


@pytest.mark.parametrize("text", ["0.1", "0.30000000000000004", "1e22", "5e-324", "1.7976931348623157e308"])
def test_a_number_that_a_float_holds_is_a_float(text: str) -> None:
    assert decode_json(text) == float(text)
    assert type(decode_json(text)) is float


def test_one_and_one_point_zero_stay_apart() -> None:
    assert encode_json(decode_json("[1,1.0]")) == b"[1,1.0]"


def test_of_duplicate_keys_the_last_counts() -> None:
    assert decode_json('{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":', "cut short"),
        (b'{"a":"\xff"}', "not valid UTF-8"),
        (b'{"a":NaN}', "invalid character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"\\ud83d"', "surrogate"),
        (b"1e9999999999999999999999", "out of range"),
    ],
)
def test_what_is_no_json_says_why(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_json(text)


def test_text_is_not_escaped() -> None:
    assert encode_json("→ 馬 😀 \u2028") == '"→ 馬 😀 \u2028"'.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        (float("-inf"), "null"),
        (Decimal("NaN"), "null"),
        (dt.datetime(2024, 2, 3, 4, 5, 6, tzinfo=dt.UTC), '"2024-02-03T04:05:06Z"'),
        (dt.date(2024, 2, 3), '"2024-02-03"'),
        (b"\x00\xff", '"AP8="'),
        (complex(1, 2), '"(1+2j)"'),
        ({(1, 2): "\ud800"}, '{"(1, 2)":"?"}'),
        ([Decimal("NaN"), b"\x00"], '[null,"AA=="]'),
    ],
)
def test_what_json_does_not_know_has_one_form(value: object, text: str) -> None:
    assert encode_json(value).decode() == text


def test_a_list_that_holds_itself_is_written_all_the_same() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert encode_json(endless).startswith(b"[[[")
