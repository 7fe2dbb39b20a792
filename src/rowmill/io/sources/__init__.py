"""Owns where rows come from: opens a source by its name; must not know what becomes of the rows."""

from __future__ import annotations

from importlib import import_module

from rowmill.core.names.databases import DatabaseUrl
from rowmill.core.names.files import leaf
from rowmill.core.names.formats import BINARY, COMPRESSED, READABLE, SHEETS, TAB, TABLES, compression_of
from rowmill.errors import SourceError
from rowmill.io.sources.encodings import check_encoding
from rowmill.io.sources.files import FileSource, Reader, find_files
from rowmill.io.sources.lines import InputFile
from rowmill.ports import Source

__all__ = ["FileSource", "open_database", "open_source"]

_READERS = {
    "csv": "rowmill.io.sources.csv:CsvReader",
    "jsonl": "rowmill.io.sources.jsonl:JsonlReader",
    "json": "rowmill.io.sources.json:JsonReader",
    "parquet": "rowmill.io.sources.parquet:ParquetReader",
    "text": "rowmill.io.sources.text:TextReader",
    "excel": "rowmill.io.sources.excel:ExcelReader",
    "arrow": "rowmill.io.sources.ipc:ArrowFileReader",
}


def open_database(url: DatabaseUrl, query: str | None, table_name: str | None) -> Source:
    """The rows that the query gives, or the table holds.  Connects to nothing yet."""
    from rowmill.io.sources.database import DatabaseSource

    return DatabaseSource(url, query, table_name)


def open_source(
    spec: str, *, encoding: str | None = None, delimiter: str | None = None, sheet: str | None = None
) -> FileSource:
    """The source that a path, a URL, a glob or `-` (JSON lines on standard input) names.  Reads nothing yet.

    `delimiter` is one character, or `\\t` spelled out; `sheet` is a name or a number from 1.  Raises SourceError.
    """
    if encoding is not None:
        check_encoding(encoding)
    if spec == "-":
        _check_delimiter(delimiter, ".jsonl")
        return FileSource(spec, [InputFile("-", encoding)], _reader_of)
    paths = find_files(spec)
    endings = {path: _ending(path) for path in paths}
    _check_one_kind(endings)
    ending = endings[paths[0]]
    delimiter = _check_delimiter(delimiter, ending)
    binary = BINARY.get(READABLE[ending])
    if encoding is not None and binary is not None:
        raise SourceError(f"--encoding is for text files; {binary} text is always UTF-8")
    if sheet is not None and ending not in SHEETS:
        raise SourceError("--sheet is for Excel workbooks")
    files = [
        InputFile(path=path, encoding=encoding, delimiter=delimiter, among_others=len(paths) > 1, sheet=sheet)
        for path in paths
    ]
    return FileSource(spec, files, _reader_of)


def _ending(path: str) -> str:
    """The ending that tells the format, without that of the packing."""
    name = leaf(path).lower()
    packing = compression_of(name)
    ending = next((ending for ending in READABLE if name.removesuffix(packing).endswith(ending)), None)
    if ending is None:
        raise SourceError(
            f"{path}: its kind is not known by its name; known endings are {' '.join(READABLE)}, "
            f"those of text also with {' or '.join(COMPRESSED)} behind"
        )
    binary = BINARY.get(READABLE[ending])
    if packing and binary is not None:
        raise SourceError(f"{path}: {binary} is packed inside; unpack the file once and name it {ending}")
    return ending


def _check_one_kind(endings: dict[str, str]) -> None:
    first_of: dict[str, str] = {}
    for path, ending in endings.items():
        first_of.setdefault(READABLE[ending], path)
    if len(first_of) > 1:
        paths = list(first_of.values())
        raise SourceError(f"{paths[0]} and {paths[1]} are of different kinds: name files of one kind")


def _check_delimiter(delimiter: str | None, ending: str) -> str | None:
    if delimiter is None:
        return None
    if ending not in TABLES:
        raise SourceError("--delimiter is for CSV and TSV files")
    delimiter = TAB if delimiter == "\\t" else delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SourceError(f"--delimiter must be one character and no quote or line end, not {delimiter!r}")
    return delimiter


def _reader_of(file: InputFile) -> Reader:
    format = "jsonl" if file.path == "-" else READABLE[_ending(file.path)]
    module, _, name = _READERS[format].partition(":")
    reader: Reader = getattr(import_module(module), name)(file)
    return reader
