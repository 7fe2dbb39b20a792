"""Owns a connection to a SQLite file: how it is opened, its errors in words; must not know rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from rowmill.databases import Address
from rowmill.errors import DatabaseError, StoreFullError

BUSY_S = 30.0


@contextlib.contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turns SQLite's errors inside into ours."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StoreFullError(f"the disk is full: {address} could not be written and is as it was") from error
        raise DatabaseError(str(error)) from error


def connect(address: Address, *, reading: bool) -> sqlite3.Connection:
    """Opens the file, which has to be there where it is read; every statement is its own transaction.

    Threads may pass the connection on, one at a time.  Raises DatabaseError.
    """
    path = Path(address.path)
    if reading and not path.is_file():
        raise DatabaseError("there is no such file")
    if not path.absolute().parent.is_dir():
        raise DatabaseError(f"there is no folder {path.absolute().parent}")
    url = f"file:{quote(str(path.absolute()))}?mode={'ro' if reading else 'rwc'}"
    with translated(address):
        return sqlite3.connect(url, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
