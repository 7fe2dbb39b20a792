"""Owns a source of one or many files: which, in what order, that they fit; must not know any format."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rowmill.core.names.files import is_remote, source_parts
from rowmill.errors import SourceError
from rowmill.io.files import remote
from rowmill.io.sources.lines import InputFile
from rowmill.io.sources.saved import saved_files
from rowmill.ports import Chunk

_GLOB_CHARACTERS = "*?["


class Reader(Protocol):
    """Reads one file in one format."""

    def columns(self) -> tuple[str, ...] | None:
        """Names known without reading rows, None where the format does not tell."""

    def chunks(self, first_index: int) -> Iterator[Chunk]:
        """All rows, the first of them at `first_index`."""

    def size_hint(self) -> int | None:
        """Number of rows where the format tells."""


class FileSource:
    """Rows of one or more files, one after another; implements `ports.Source`."""

    def __init__(self, name: str, files: Sequence[InputFile], reader_of: Callable[[InputFile], Reader]) -> None:
        self._name = name
        self._files = files
        self._reader_of = reader_of

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self._name

    @property
    def rereadable(self) -> bool:
        """Whether `chunks()` may be called again."""
        return self._name != "-"

    def columns(self) -> tuple[str, ...] | None:
        """Names known without reading rows (union over the files), None where the format does not tell.

        Raises SourceError where a file cannot be read or files do not fit each other.
        """
        self._check_types()
        names: dict[str, None] = {}
        for reader in self._readers():
            columns = reader.columns()
            if columns is None:
                return None
            names.update(dict.fromkeys(columns))
        return tuple(names)

    def chunks(self) -> Iterator[Chunk]:
        """All rows, file by file; indices run on."""
        self._check_types()
        first_index = 0
        for reader in self._readers():
            for chunk in reader.chunks(first_index):
                yield chunk
                first_index = chunk.indices[-1] + 1

    def size_hint(self) -> int | None:
        """Number of rows in all files where the format tells."""
        total = 0
        for reader in self._readers():
            size = reader.size_hint()
            if size is None:
                return None
            total += size
        return total

    def _readers(self) -> Iterator[Reader]:
        return map(self._reader_of, self._files)

    def _check_types(self) -> None:
        if len(self._files) < 2:
            return
        seen: dict[str, tuple[Any, str]] = {}
        for file, reader in zip(self._files, self._readers(), strict=True):
            schema = getattr(reader, "schema", None)
            if schema is None:
                return
            for field in schema():
                kind, first = seen.setdefault(field.name, (field.type, file.path))
                # A column that is null throughout one file fits any type.
                if str(kind) == "null":
                    seen[field.name] = (field.type, file.path)
                elif field.type != kind and str(field.type) != "null":
                    raise SourceError(
                        f"column {field.name!r} is {kind} in {first} and {field.type} in {file.path}: "
                        "give the files equal types, or run them one by one"
                    )


def find_files(spec: str) -> list[str]:
    """The paths that a path or glob names, sorted; several of them in their order.  Raises SourceError for none."""
    parts = source_parts(spec)
    if len(parts) > 1:
        return list(dict.fromkeys(path for part in parts for path in find_files(part)))
    if is_remote(spec):
        try:
            return remote.find(spec)
        except OSError as error:
            raise SourceError(f"{spec} cannot be read: {error}") from error
    path = os.path.expanduser(spec)
    if (saved := saved_files(path)) is not None:
        return saved
    if Path(path).is_dir():
        ending = next((name.suffix for name in sorted(Path(path).iterdir()) if name.suffix), ".csv")
        raise SourceError(f"{spec} is a folder: name its files, for example '{spec.rstrip('/')}/*{ending}'")
    if os.path.lexists(path) or not any(character in path for character in _GLOB_CHARACTERS):
        _check_readable(spec, path)
        return [path]
    found = sorted(name for name in glob.glob(path, recursive=True) if not Path(name).is_dir())
    if not found:
        raise SourceError(f"no file matches {spec}")
    for name in found:
        _check_readable(name, name)
    return found


def _check_readable(spec: str, path: str) -> None:
    if not Path(path).exists():
        raise SourceError(f"{spec}: there is no such file")
    if not Path(path).is_file():
        raise SourceError(f"{spec} is no regular file; JSON lines can come on standard input, named -")
    if not os.access(path, os.R_OK):
        raise SourceError(f"{spec} cannot be read: permission denied")
