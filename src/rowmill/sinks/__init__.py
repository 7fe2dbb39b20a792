"""Owns where output rows go: makes a sink by its format; must not know where rows come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from rowmill.errors import OutputError
from rowmill.outputs import OutputColumns
from rowmill.ports import Chunk, Sink
from rowmill.sinks.atomic import check_writable
from rowmill.sinks.settings import SinkSettings

__all__ = ["FORMATS", "check_writable", "create_sink", "format_of"]

_SINKS = {
    "jsonl": "rowmill.sinks.jsonl:JsonlSink",
    "csv": "rowmill.sinks.csv:CsvSink",
    "tsv": "rowmill.sinks.csv:TsvSink",
    "parquet": "rowmill.sinks.parquet:ParquetSink",
}
FORMATS = tuple(_SINKS)
_ENDINGS = {f".{name}": name for name in FORMATS} | {".ndjson": "jsonl"}


def format_of(path: str) -> str:
    """The format that the path's ending names; raises OutputError."""
    for ending, name in _ENDINGS.items():
        if path.lower().endswith(ending):
            return name
    raise OutputError(
        f"{path}: no output format has this ending; known are {' '.join(_ENDINGS)}, or name one with --format"
    )


def create_sink(
    path: str,
    format: str,
    columns: OutputColumns,
    chunks: Callable[[], Iterable[Chunk]],
    escape_formulas: bool = False,
) -> Sink:
    """A sink that has opened its temporary file.

    `chunks` gives all input that the output may hold; Parquet reads it once for the types.  Raises
    OutputError, or StoreFullError when the disk is full.
    """
    place = _SINKS.get(format)
    if place is None:
        raise OutputError(f"unknown output format {format!r}; known are {' '.join(FORMATS)}")
    columns.check()
    module, _, name = place.partition(":")
    sink: Sink = getattr(import_module(module), name)(SinkSettings(path, columns, chunks, escape_formulas))
    return sink
