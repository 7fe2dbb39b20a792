"""Owns how output rows become Arrow: one schema for all of them, and batches of it; must not know files.

Text stays text and Arrow types stay as they are.  A text that stands for more (JSON, a UUID, a number of any length)
may carry a mark that says so, by which a database gives it a type of its own.  A column of JSON values is int64, double
or boolean where all its values are and none would change by it; text where they are text; and otherwise (nested,
mixed, or numbers that would lose digits) a string column in which text stands as it is and everything else as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rowmill.core.rows.chunks import ArrowChunk, TableChunk, encode_json
from rowmill.core.rows.chunks.arrow import plain_values
from rowmill.core.rows.outputs.columns import OutputColumns
from rowmill.core.rows.outputs.output_rows import Batch
from rowmill.ports import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

MARK = b"rowmill:kind"
_INT64 = range(-(1 << 63), 1 << 63)
_EXACT_IN_DOUBLE = range(-(1 << 53), (1 << 53) + 1)


class _Seen:
    """What one input column has held so far."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.lowest = 0
        self.highest = 0
        self.arrow_types: list[pa.DataType] = []
        self.marks: set[str | None] = set()

    def add(self, values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        self.kinds |= kinds
        if int in kinds:
            integers = [value for value in values if type(value) is int]
            self.lowest = min(self.lowest, *integers)
            self.highest = max(self.highest, *integers)

    def add_arrow(self, field: pa.Field) -> None:
        if field.type not in self.arrow_types:
            self.arrow_types.append(field.type)
        self.marks.add(mark_of(field))

    @property
    def mark(self) -> str | None:
        """What all the column's texts stand for, where all are marked alike."""
        return next(iter(self.marks)) if len(self.marks) == 1 and len(self.arrow_types) == 1 else None

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        kinds = self.kinds - {type(None)}
        if self.arrow_types:
            certain = [kind for kind in self.arrow_types if not pa.types.is_null(kind)]
            if kinds or len(certain) > 1:
                return pa.string()
            return (certain or self.arrow_types)[0]
        if kinds == {bool}:
            return pa.bool_()
        if kinds == {bytes}:
            return pa.binary()
        if kinds == {int} and self._integers_in(_INT64):
            return pa.int64()
        if kinds == {float} or (kinds == {int, float} and self._integers_in(_EXACT_IN_DOUBLE)):
            return pa.float64()
        return pa.string()

    def _integers_in(self, bounds: range) -> bool:
        return self.lowest in bounds and self.highest in bounds


def arrow_schema(chunks: Iterable[Chunk], columns: OutputColumns) -> pa.Schema:
    """The schema of the whole output; it depends on the set of rows and not on their order."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "json": pa.string(),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
    }
    answer = [(kinds[column.kind], "json" if column.kind == "json" else None) for column in columns.answer]
    meta = [(kinds[kind], None) for kind in columns.meta_kinds]
    types = [*_input_types(chunks, columns.input), *answer, *meta]
    fields = [_field(name, kind, mark) for name, (kind, mark) in zip(columns.names, types, strict=True)]
    return pa.schema(fields)


def _field(name: str, kind: pa.DataType, mark: str | None) -> pa.Field:
    import pyarrow as pa

    return pa.field(name, kind, metadata=None if mark is None else {MARK: mark.encode()})


def mark_of(field: pa.Field) -> str | None:
    """What the field's text stands for: json, uuid or numeric; None where it is but text."""
    return (field.metadata or {}).get(MARK, b"").decode() or None


def marked(batch: pa.RecordBatch, marks: Sequence[str | None]) -> pa.RecordBatch:
    """The batch with a mark on each field, and none but these."""
    import pyarrow as pa

    fields = [_field(field.name, field.type, mark) for field, mark in zip(batch.schema, marks, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _input_types(chunks: Iterable[Chunk], names: Sequence[str]) -> list[tuple[pa.DataType, str | None]]:
    import pyarrow as pa

    seen = {name: _Seen() for name in names}
    for chunk in chunks:
        if isinstance(chunk, TableChunk):
            # A source has chunks of one kind, and here all columns are text.
            return [(pa.string(), None) for _ in names]
        if isinstance(chunk, ArrowChunk):
            for field in chunk.batch.schema:
                if field.name in seen:
                    seen[field.name].add_arrow(field)
        else:
            rows = list(chunk.values(None))
            for name, column in seen.items():
                column.add([row[name] for row in rows if name in row])
    return [(column.arrow_type(), column.mark) for column in seen.values()]


def arrow_batch(batch: Batch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one Arrow batch of the schema that `arrow_schema` gave for these columns."""
    import pyarrow as pa

    columns = batch.columns
    kinds = schema.types[: len(columns.input)]
    arrays = [_input_array(batch.chunk, name, kind) for name, kind in zip(columns.input, kinds, strict=True)]
    answers = list(batch.answers())
    for column in columns.answer:
        values = [_fitting(answer.get(column.name), column.kind) for answer in answers]
        arrays.append(pa.array(values, schema.types[len(arrays)]))
    meta_rows = map(columns.meta_of(), batch.finished)
    meta_columns = zip(*meta_rows, strict=True) if answers else [()] * len(columns.meta_names)
    arrays.extend(pa.array(column, schema.types[len(arrays)]) for column in meta_columns)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _input_array(chunk: Chunk, name: str, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if name not in chunk.columns:
        return pa.nulls(len(chunk), kind)
    if isinstance(chunk, ArrowChunk):
        column = chunk.batch.column(name)
        if column.type == kind:
            return column
        values = plain_values(column)
    elif isinstance(chunk, TableChunk):
        at = list(chunk.columns).index(name)
        values = [row[at] if row else None for row in chunk.rows]
    else:
        values = [row.get(name) for row in chunk.values(None)]
    if pa.types.is_string(kind):
        values = [_as_text(value) for value in values]
    return pa.array(values, kind)


def _as_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return encode_json(value).decode()


def _fitting(value: Any, kind: str) -> Any:
    """The value as the column's type holds it; None where it cannot (the run file keeps the reply)."""
    if value is None:
        return None
    match kind:
        case "string":
            return _as_text(value)
        case "json":
            return encode_json(value).decode()
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer":
            return _integer(value)
        case _:
            is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            return _number(value) if is_number else None


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    whole = isinstance(value, int) or value.is_integer()
    return int(value) if whole and int(value) in _INT64 else None


def _number(value: float | Decimal) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
