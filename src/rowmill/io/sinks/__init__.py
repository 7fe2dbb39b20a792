"""Owns where output rows go: makes a sink by its format; must not know where rows come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module

from rowmill.core.names.databases import Target, WriteReceipt
from rowmill.core.names.files import leaf
from rowmill.core.names.formats import WRITABLE, WRITTEN
from rowmill.core.rows.outputs import OutputColumns, arrow_schema
from rowmill.errors import OutputError
from rowmill.io.sinks.atomic import check_writable, remove, translated
from rowmill.io.sinks.settings import OutputShape, SinkSettings
from rowmill.ports import Chunk, Sink

__all__ = [
    "FORMATS",
    "OutputShape",
    "check_target",
    "check_writable",
    "create_sink",
    "create_table_sink",
    "format_of",
    "remove",
    "table_rows",
    "translated",
]

_SINKS = {
    "jsonl": "rowmill.io.sinks.jsonl:JsonlSink",
    "csv": "rowmill.io.sinks.csv:CsvSink",
    "tsv": "rowmill.io.sinks.csv:TsvSink",
    "parquet": "rowmill.io.sinks.parquet:ParquetSink",
}
FORMATS = WRITTEN


def format_of(path: str) -> str:
    """The format that the path's ending names; raises OutputError."""
    for ending, name in WRITABLE.items():
        if leaf(path).lower().endswith(ending):
            return name
    raise OutputError(
        f"{path}: no output format has this ending; known are {' '.join(WRITABLE)}, or name one with --format"
    )


def create_table_sink(
    target: Target,
    columns: OutputColumns,
    chunks: Callable[[], Iterable[Chunk]],
    receipts: Sequence[WriteReceipt] = (),
    remember: Callable[[WriteReceipt], None] = lambda receipt: None,
) -> Sink:
    """A sink that fills a table at its commit; see `database.TableSettings`.  Raises OutputError."""
    from rowmill.io.sinks.database import TableSettings, TableSink

    columns.check()
    return TableSink(TableSettings(target=target, columns=columns, chunks=chunks, receipts=receipts, remember=remember))


def check_target(target: Target, receipts: Sequence[WriteReceipt] = ()) -> None:
    """Raises OutputError unless the table could be written; changes nothing."""
    from rowmill.io.sinks import database

    database.check_target(target, receipts)


def table_rows(target: Target) -> int | None:
    """How many rows stand in the table; None where it is not there.  Raises DatabaseError."""
    from rowmill.io.sinks import database

    return database.table_rows(target)


def create_sink(
    path: str,
    shape: OutputShape,
    columns: OutputColumns,
    chunks: Callable[[], Iterable[Chunk]],
) -> Sink:
    """A sink that has opened its temporary file, or the folder that holds its parts.

    `chunks` gives all input that the output may hold; Parquet reads it once for the types.  Raises
    OutputError, or StoreFullError when the disk is full.
    """
    sink = _SINKS.get(shape.format)
    if sink is None:
        raise OutputError(f"unknown output format {shape.format!r}; known are {' '.join(FORMATS)}")
    columns.check()
    module, _, name = sink.partition(":")
    kind: Callable[[SinkSettings], Sink] = getattr(import_module(module), name)
    schema = cache(lambda: arrow_schema(chunks(), columns))
    settings = SinkSettings(path, columns, schema, shape.escape_formulas)
    if shape.split_rows is None:
        return kind(settings)
    from rowmill.io.sinks.parts import PartsSink

    return PartsSink(path, shape, lambda part: kind(replace(settings, path=part)))
