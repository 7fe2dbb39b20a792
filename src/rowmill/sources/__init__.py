"""Owns where rows come from: opens a source by its name; must not know what becomes of the rows."""

from __future__ import annotations

from importlib import import_module

from rowmill.databases import Address
from rowmill.errors import SourceError
from rowmill.ports import Source
from rowmill.sources.encodings import check_encoding
from rowmill.sources.files import FileSource, Reader, find_files
from rowmill.sources.lines import InputFile

__all__ = ["FileSource", "open_database", "open_source"]

_READERS = {
    ".csv": "rowmill.sources.csv:CsvReader",
    ".tsv": "rowmill.sources.csv:CsvReader",
    ".jsonl": "rowmill.sources.jsonl:JsonlReader",
    ".ndjson": "rowmill.sources.jsonl:JsonlReader",
    ".json": "rowmill.sources.json:JsonReader",
    ".parquet": "rowmill.sources.parquet:ParquetReader",
    ".txt": "rowmill.sources.text:TextReader",
}
_PACKED = (".gz", ".zst")
_TABLES = (".csv", ".tsv")


def open_database(address: Address, query: str | None, table_name: str | None) -> Source:
    """The rows that the query gives, or the table holds.  Connects to nothing yet."""
    from rowmill.sources.database import DatabaseSource

    return DatabaseSource(address, query, table_name)


def open_source(spec: str, *, encoding: str | None = None, delimiter: str | None = None) -> FileSource:
    """The source that a path, a glob or `-` (JSON lines on standard input) names.  Reads nothing yet.

    `delimiter` is one character, or `\\t` spelled out.  Raises SourceError.
    """
    if encoding is not None:
        check_encoding(encoding)
    if spec == "-":
        _check_delimiter(delimiter, ".jsonl")
        return FileSource(spec, [InputFile("-", encoding)], _reader_of)
    if "://" in spec:
        raise SourceError(f"{spec}: web addresses cannot be read yet; a file, a glob or a database can")
    paths = find_files(spec)
    endings = {path: _ending(path) for path in paths}
    _check_one_kind(endings)
    ending = endings[paths[0]]
    delimiter = _check_delimiter(delimiter, ending)
    if encoding is not None and ending == ".parquet":
        raise SourceError("--encoding is for text files; Parquet text is always UTF-8")
    files = [InputFile(path, encoding, delimiter, among_others=len(paths) > 1) for path in paths]
    return FileSource(spec, files, _reader_of)


def _ending(path: str) -> str:
    """The ending that tells the format, without that of the packing."""
    name = path.lower().rpartition("/")[2]
    packing = next((packing for packing in _PACKED if name.endswith(packing)), "")
    ending = next((ending for ending in _READERS if name.removesuffix(packing).endswith(ending)), None)
    if ending is None:
        raise SourceError(
            f"{path}: its kind is not known by its name; known endings are {' '.join(_READERS)}, "
            f"all but .parquet also with {' or '.join(_PACKED)} behind"
        )
    if packing and ending == ".parquet":
        raise SourceError(f"{path}: Parquet is packed inside; unpack the file once and name it .parquet")
    return ending


def _check_one_kind(endings: dict[str, str]) -> None:
    first_of: dict[str, str] = {}
    for path, ending in endings.items():
        first_of.setdefault(_READERS[ending], path)
    if len(first_of) > 1:
        paths = list(first_of.values())
        raise SourceError(f"{paths[0]} and {paths[1]} are of different kinds: name files of one kind")


def _check_delimiter(delimiter: str | None, ending: str) -> str | None:
    if delimiter is None:
        return None
    if ending not in _TABLES:
        raise SourceError("--delimiter is for CSV and TSV files")
    delimiter = "\t" if delimiter == "\\t" else delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SourceError(f"--delimiter must be one character and no quote or line end, not {delimiter!r}")
    return delimiter


def _reader_of(file: InputFile) -> Reader:
    ending = ".jsonl" if file.path == "-" else _ending(file.path)
    module, _, name = _READERS[ending].partition(":")
    reader: Reader = getattr(import_module(module), name)(file)
    return reader
