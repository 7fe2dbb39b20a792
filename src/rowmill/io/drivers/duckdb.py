"""Owns a connection to a DuckDB file: how it is opened, its errors in words; must not know rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rowmill.core.names.databases import DatabaseUrl
from rowmill.errors import DatabaseError

if TYPE_CHECKING:
    import duckdb

# DuckDB would take most of the machine's memory; what does not fit goes to its temporary files.
_SETTINGS = {"memory_limit": "1GB", "threads": "2"}
_INTERRUPTED = "Query interrupted"


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns DuckDB's errors inside into ours."""
    try:
        import duckdb
    except ImportError:
        raise DatabaseError("DuckDB needs its library: pip install 'rowmill[duckdb]'") from None
    try:
        yield
    except duckdb.Error as error:
        lines = str(error).strip().splitlines() or ["it failed"]
        raise DatabaseError(lines[0]) from None
    except RuntimeError as error:
        if str(error) == _INTERRUPTED:  # by Ctrl-C, which DuckDB looks for itself
            raise KeyboardInterrupt from None
        raise


def connect(url: DatabaseUrl, *, reading: bool) -> duckdb.DuckDBPyConnection:
    """Opens the file, which has to be there where it is read.  Raises DatabaseError."""
    path = Path(url.path)
    if reading and not path.is_file():
        raise DatabaseError("there is no such file")
    if not path.absolute().parent.is_dir():
        raise DatabaseError(f"there is no folder {path.absolute().parent}")
    with translated():
        import duckdb

        return duckdb.connect(str(path), read_only=reading, config=dict(_SETTINGS))
