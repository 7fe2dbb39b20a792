"""Frames in and out: anything that speaks Arrow's stream protocol, handed back as the same kind with more columns."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowmill.errors import JobError

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_PER_PIECE = 1_000


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the caller's and the same rows as an Arrow table."""

    original: Any
    table: pa.Table

    def widened(self, added: pa.Table) -> Any:
        """The caller's frame with these columns added: a new frame of the same kind, row by row."""
        kind = _library(self.original)
        if kind == "pandas":
            return _widened_pandas(self.original, added)
        if kind == "polars":
            import polars

            return self.original.hstack(polars.DataFrame(added).get_columns())
        if kind == "datasets":
            return _widened_data_set(self, added)
        import pyarrow as pa

        table = self.original if isinstance(self.original, pa.Table) else self.table
        for name in added.column_names:
            table = table.append_column(name, added.column(name))
        if kind == "duckdb":
            return sys.modules["duckdb"].from_arrow(table)
        return _as_read(self.original, table)


def read_frame(rows: Any) -> Frame | None:
    """The rows as a frame, None where they are none.  Raises JobError for a frame that cannot become Arrow."""
    if _library(rows) == "datasets":
        return Frame(rows, _table_of_data_set(rows))
    if _library(rows) == "polars" and hasattr(rows, "collect"):
        raise JobError("rows: a LazyFrame has no rows yet; call .collect() on it")
    speaks_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    if not speaks_arrow or not (hasattr(rows, "columns") or hasattr(rows, "schema")):
        return None
    import pyarrow as pa

    try:
        if _library(rows) == "pandas":
            return Frame(rows, pa.Table.from_pandas(rows, preserve_index=False))
        return Frame(rows, pa.table(rows))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise JobError(f"rows: the frame has a column that Arrow cannot hold: {error}") from None


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0].lstrip("_")


def _table_of_data_set(rows: Any) -> pa.Table:
    """A data set of the Hugging Face library, or a stream of one, as a table."""
    import pyarrow as pa

    if hasattr(rows, "keys"):
        raise JobError(f"rows: this holds several data sets; name one of {', '.join(map(str, rows.keys()))}")
    rows = rows.with_format("arrow")
    if hasattr(rows, "__len__"):
        return rows[:]
    pieces = list(rows.iter(batch_size=_ROWS_PER_PIECE))
    return pa.concat_tables(pieces) if pieces else pa.table({})


def _widened_data_set(frame: Frame, added: pa.Table) -> Any:
    """A data set with these columns too; of a stream a stream again, which is in memory now."""
    library = sys.modules["datasets"]
    is_whole = hasattr(frame.original, "__len__")
    whole = frame.original if is_whole else library.Dataset(frame.table)
    widened = library.concatenate_datasets([whole, library.Dataset(added)], axis=1)
    return widened if is_whole else widened.to_iterable_dataset()


def _as_read(original: Any, table: pa.Table) -> Any:
    """A record batch or a reader where that came in; else a table."""
    import pyarrow as pa

    if isinstance(original, pa.RecordBatchReader):
        return table.to_reader()
    if isinstance(original, pa.RecordBatch):
        arrays = [
            pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
            for column in table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    return table


def _widened_pandas(frame: Any, added: pa.Table) -> Any:
    """Whole numbers and booleans stay what they are also where some are missing."""
    import pandas
    import pyarrow as pa

    columns = {}
    for name in added.column_names:
        column = added.column(name)
        kinds: dict[Any, Any] = {}
        if column.null_count:
            kinds = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
        series = column.to_pandas(types_mapper=kinds.get)
        series.index = frame.index
        columns[name] = series
    return pandas.concat([frame, pandas.DataFrame(columns, index=frame.index)], axis=1)
