"""Owns JSON in and out with exact values; must not know rows, chunks or files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal, DecimalException
from typing import Any

import msgspec

# A decimal of up to 15 digits comes back from a float as it was written.
_SURELY_EXACT_CHARACTERS = 16
_DEEPEST = 100


def _exact_float(text: str) -> float | Decimal:
    value = float(text)
    if len(text) <= _SURELY_EXACT_CHARACTERS and "e" not in text and "E" not in text:
        return value
    try:
        exact = Decimal(text)
    except DecimalException as error:
        raise ValueError(f"the number {text[:40]} is out of range") from error
    if math.isinf(value) or Decimal(repr(value)) != exact:
        return exact
    return value


_decode = msgspec.json.Decoder(float_hook=_exact_float).decode
ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)
SORTED_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str, order="deterministic")


def decode_json(text: bytes | str) -> Any:
    """The value of one JSON text.

    Integers are exact at any size.  A number with a fraction or exponent is a float, or a Decimal where a
    float would change its value (1e400, twenty digits).  Of duplicate keys the last counts.  Raises
    ValueError with a reason for the user.
    """
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(_reason(text, str(error))) from None


def _reason(text: bytes | str, said: str) -> str:
    if "UTF-8" in said:
        return "not valid UTF-8"
    if _has_half_a_surrogate_pair(text):
        return "not valid JSON: an escape is half of a surrogate pair"
    if "truncated" in said:
        return "not valid JSON: it is cut short"
    said = said.removeprefix("JSON is malformed: ")
    return f"not valid JSON: {said[:1].lower()}{said[1:]}"


def _has_half_a_surrogate_pair(text: bytes | str) -> bool:
    escape: Any = "\\ud" if isinstance(text, str) else b"\\ud"
    if escape not in text.lower():
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def encode_json(value: object) -> bytes:
    """The value as JSON in UTF-8, nothing escaped that need not be.

    Times are ISO 8601, bytes base64, NaN and infinities null, decimals numbers; what JSON does not know is
    its `str`.  Never raises for what text, numbers, times and containers can hold.
    """
    try:
        return ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return ENCODER.encode(_tame(value, 0))


def encode_sorted(value: object) -> bytes:
    """As `encode_json`, with the keys of every object in order, so that equal values give equal bytes."""
    try:
        return SORTED_ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return SORTED_ENCODER.encode(_tame(value, 0))


def _tame(value: object, depth: int) -> object:
    """The value with everything replaced that the encoder refuses."""
    if depth > _DEEPEST:
        return _tame(str(value), 0)
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case Decimal():
            return value if value.is_finite() else None
        case Mapping():
            return {_tame(str(key), 0): _tame(item, depth + 1) for key, item in value.items()}
        case bytes() | bytearray() | memoryview():
            return value
        case Sequence() | Set():
            return [_tame(item, depth + 1) for item in value]
        case _:
            return value
