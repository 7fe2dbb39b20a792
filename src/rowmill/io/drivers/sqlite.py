"""Owns a connection to a SQLite file: how it is opened, its errors in words; must not know rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

from rowmill.core.names.databases import DatabaseUrl
from rowmill.errors import DatabaseError, StoreFullError
from rowmill.io.drivers.waiting import awaited

BUSY_S = 30.0
BUSY_STEP_S = 0.5  # a wait in the library cannot be interrupted


@contextlib.contextmanager
def translated(url: DatabaseUrl) -> Iterator[None]:
    """Turns SQLite's errors inside into ours."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StoreFullError(f"the disk is full: {url} could not be written and is as it was") from error
        raise DatabaseError(str(error)) from error


def connect(url: DatabaseUrl, *, reading: bool) -> sqlite3.Connection:
    """Opens the file, which has to be there where it is read; every statement is its own transaction.

    Threads may pass the connection on, one at a time.  Raises DatabaseError.
    """
    path = Path(url.path)
    if reading and not path.is_file():
        raise DatabaseError("there is no such file")
    if not path.absolute().parent.is_dir():
        raise DatabaseError(f"there is no folder {path.absolute().parent}")
    uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if reading else 'rwc'}"
    with translated(url):
        return sqlite3.connect(uri, uri=True, timeout=BUSY_STEP_S, isolation_level=None, check_same_thread=False)


def execute(connection: sqlite3.Connection, sql: str) -> sqlite3.Cursor:
    """Runs a statement to its first row; Ctrl-C ends it.  Where the file is locked it waits for `BUSY_S`."""
    until_s = monotonic() + BUSY_S
    while True:
        try:
            return awaited(lambda: connection.execute(sql), connection.interrupt)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() >= until_s:
                raise
            sleep(BUSY_STEP_S)
