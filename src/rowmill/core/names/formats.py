"""Owns which formats there are and how files of each end; must not know how one is read or written."""

from __future__ import annotations

from collections.abc import Mapping

COMPRESSED = (".gz", ".zst")
TABLES = (".csv", ".tsv")
SHEETS = (".xlsx", ".xlsm")
# A file's ending -> the format that is read there.
READABLE: Mapping[str, str] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "text",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
BATCH_READABLE = tuple(ending for ending, name in READABLE.items() if name in ("jsonl", "json"))
# Formats that hold no text, as messages call them.
BINARY: Mapping[str, str] = {"parquet": "Parquet", "excel": "Excel", "arrow": "Arrow"}
# The formats of outputs, and the file endings that choose one.
WRITTEN = ("jsonl", "csv", "tsv", "parquet")
WRITABLE: Mapping[str, str] = {**{f".{name}": name for name in WRITTEN}, ".ndjson": "jsonl"}
COMMA, TAB = ",", "\t"


def compression_of(name: str) -> str:
    """The ending that says how a file is compressed, "" where it is not; `name` in lower case."""
    return next((ending for ending in COMPRESSED if name.endswith(ending)), "")


def delimiter_of(name: str) -> str:
    """What separates the cells of a table of that name, in lower case, where the user does not say."""
    return TAB if name.removesuffix(compression_of(name)).endswith(".tsv") else COMMA
