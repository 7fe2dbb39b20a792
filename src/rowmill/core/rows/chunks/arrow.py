"""Owns chunks of Arrow data, types exact, and their values as plain Python; must not know any file format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowmill.core.rows.chunks.rows import NO_FAULTS, pack_indices, take_indices
from rowmill.records import Fault

if TYPE_CHECKING:
    import pyarrow as pa

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ArrowChunk:
    """Rows of one Arrow record batch (Parquet, later SQL and frames); it has no faults."""

    indices: Sequence[int]
    batch: pa.RecordBatch

    @property
    def columns(self) -> Sequence[str]:
        """The batch's column names."""
        return tuple(self.batch.schema.names)

    @property
    def faults(self) -> Mapping[int, Fault]:
        """None: Arrow data has no lines that can be wrong."""
        return NO_FAULTS

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def values(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """One mapping a row with the named columns (None: all) that the batch has; nulls are None."""
        columns = self.columns
        held = columns if names is None else [name for name in names if name in columns]
        return self._rows(held)

    def records(self) -> Iterator[dict[str, Any]]:
        """One whole row at a time.  What Python's types cannot hold (nanoseconds, far years) is text."""
        return self._rows(self.columns)

    def _rows(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        if not names:
            return ({} for _ in range(len(self)))
        lists = [plain_values(self.batch.column(name)) for name in names]
        return (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))

    def take(self, offsets: Sequence[int]) -> ArrowChunk:
        """The rows at these offsets, with their indices."""
        import pyarrow as pa

        indices = take_indices(self.indices, offsets)
        if offsets and offsets[-1] - offsets[0] + 1 == len(offsets):
            return ArrowChunk(indices, self.batch.slice(offsets[0], len(offsets)))
        return ArrowChunk(indices, self.batch.take(pa.array(offsets, pa.int64())))

    def encode(self) -> tuple[str, bytes]:
        """("arrow", an Arrow IPC stream of one batch)."""
        import pyarrow as pa

        batch = _with_small_dictionaries(self.batch)
        target = pa.BufferOutputStream()
        with pa.ipc.new_stream(target, batch.schema) as writer:
            writer.write_batch(batch)
        return "arrow", target.getvalue().to_pybytes()

    @classmethod
    def decode(cls, payload: bytes, indices: Sequence[int]) -> ArrowChunk:
        """The chunk that `encode` packed; raises pyarrow.ArrowException."""
        import pyarrow as pa

        with pa.ipc.open_stream(payload) as reader:
            return cls(pack_indices(indices), reader.read_next_batch())


def _with_small_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionary entries that its rows do not use: a file's dictionary may be huge."""
    import pyarrow as pa

    for index, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            small = column.dictionary_decode().cast(column.type)
            batch = batch.set_column(index, batch.schema.field(index), small)
    return batch


def plain_values(column: pa.Array) -> list[Any]:
    """The column as Python values; never raises."""
    import pyarrow as pa

    try:
        if _has_nanoseconds(column.type):
            column = column.cast(_in_microseconds(column.type))
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, LookupError):
        return [_plain(scalar) for scalar in column]
    return values


def _has_nanoseconds(kind: pa.DataType) -> bool:
    """Whether the type holds times in nanoseconds, of which pyarrow makes pandas' types where pandas is installed."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return bool(kind.unit == "ns")
    if pa.types.is_dictionary(kind):
        return _has_nanoseconds(kind.value_type)
    return any(_has_nanoseconds(kind.field(index).type) for index in range(kind.num_fields))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds in place of nanoseconds; raises ArrowTypeError for one that is nested."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    raise pa.ArrowTypeError("times in nanoseconds are nested here")


def _plain(scalar: pa.Scalar) -> Any:
    """One value for which Python's own types may be too narrow: whatever is, becomes ISO 8601 or text."""
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        return None
    try:
        if not _has_nanoseconds(kind):
            return scalar.as_py()
        return scalar.cast(_in_microseconds(kind)).as_py()
    except (pa.ArrowException, ValueError, OverflowError, LookupError):
        pass
    if pa.types.is_dictionary(kind):
        return _plain(scalar.value)
    if pa.types.is_map(kind):
        return [(_plain(pair["key"]), _plain(pair["value"])) for pair in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _plain(scalar[name]) for name in scalar}
    if pa.types.is_nested(kind):
        return [_plain(item) for item in scalar.values]
    if pa.types.is_timestamp(kind):
        return _timestamp_text(scalar)
    if pa.types.is_duration(kind):
        return _duration_text(scalar)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    return _text(scalar)


def _text(scalar: pa.Scalar) -> str:
    """The value as Arrow writes it; for days beyond the calendar the number it stores."""
    import pyarrow as pa

    try:
        text = str(scalar.cast(pa.string()).as_py())
    except (pa.ArrowException, ValueError):
        return repr(scalar)
    return str(scalar.value) if "out of range" in text else text


def _timestamp_text(scalar: pa.Scalar) -> str:
    import pyarrow as pa

    try:
        text = str(scalar.cast(pa.string()).as_py())
    except (pa.ArrowException, ValueError):
        # The zone is unknown here: the same instant in UTC.
        text = str(scalar.cast(pa.timestamp(scalar.type.unit)).cast(pa.string()).as_py()) + "Z"
    if "out of range" in text:
        return f"{scalar.value} {scalar.type.unit} since 1970"
    return text.replace(" ", "T", 1)


def _duration_text(scalar: pa.Scalar) -> str:
    per_s = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": _NS_PER_S}[scalar.type.unit]
    seconds, rest = divmod(abs(scalar.value), per_s)
    fraction = f".{rest * (_NS_PER_S // per_s):09d}".rstrip("0").rstrip(".") if rest else ""
    return f"{'-' if scalar.value < 0 else ''}PT{seconds}{fraction}S"
