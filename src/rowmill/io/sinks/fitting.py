"""Owns how Arrow columns become what a database's driver takes; must not know any database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rowmill.core.rows.chunks import decode_json, encode_json
from rowmill.core.rows.chunks.arrow import plain_values
from rowmill.core.rows.outputs import mark_of

if TYPE_CHECKING:
    import pyarrow as pa

NUL, ESCAPED_NUL, REPLACEMENT = "\0", "\\u0000", "\ufffd"


def is_scalar(kind: pa.DataType) -> bool:
    """Whether a value of the type is one value."""
    import pyarrow as pa

    return not pa.types.is_nested(kind)


def fitted(
    table: pa.Table, fits: Callable[[pa.DataType], pa.DataType | None], *, without_nul: bool = False
) -> pa.Table:
    """The table with every column in the type that `fits` gives, or as JSON text where it gives none.

    With `without_nul` the sign U+0000, which some databases cannot hold in a text, is replaced by U+FFFD.
    """
    import pyarrow as pa

    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = fits(field.type)
        made = _json_texts(column) if kind is None else _cast(column, kind)
        if without_nul:
            made = _without_nul(made)
            if kind is None or mark_of(field) == "json":
                made = _replaced(made, ESCAPED_NUL, _tamed_json)
        columns.append(made)
    return pa.table(columns, names=table.column_names)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind, safe=False)


def _json_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    values = (value for part in column.chunks for value in plain_values(part))
    texts = [None if value is None else encode_json(value).decode() for value in values]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _without_nul(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = column.type
    if _is_text(kind):
        return _replaced(column, NUL, lambda text: text.replace(NUL, REPLACEMENT))
    if pa.types.is_list(kind) and _is_text(kind.value_type):
        items = pa.chunked_array([part.flatten() for part in column.chunks], kind.value_type)
        if _holds(items, NUL):
            lists = [
                value and [item and item.replace(NUL, REPLACEMENT) for item in value] for value in column.to_pylist()
            ]
            return pa.chunked_array([pa.array(lists, kind)])
    return column


def _replaced(column: pa.ChunkedArray, sign: str, change: Callable[[str], str]) -> pa.ChunkedArray:
    import pyarrow as pa

    if not _is_text(column.type) or not _holds(column, sign):
        return column
    return pa.chunked_array([pa.array([value and change(value) for value in column.to_pylist()], column.type)])


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _holds(column: Any, sign: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring(column, sign)).as_py())


def _tamed_json(text: str) -> str:
    try:
        return encode_json(_tamed(decode_json(text))).decode()
    except ValueError:
        return text


def _tamed(value: Any) -> Any:
    match value:
        case str():
            return value.replace(NUL, REPLACEMENT)
        case dict():
            return {_tamed(name): _tamed(item) for name, item in value.items()}
        case list():
            return [_tamed(item) for item in value]
    return value
