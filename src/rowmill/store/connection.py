"""Opening a run file: its format, its pragmas, its damage told in words.

All of the store's connections are made here; foreign errors become ours here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

from rowmill.errors import LockedError, OutputError, RunFileError, StoreFullError

FORMAT = 2
APPLICATION_ID = 0x524F574D  # "ROWM"
CHECKED_BYTES = 1 << 30
UNMADE_BYTES = 8192

_null = dict[None, None]().get


def is_there(path: Path) -> bool:
    """Whether there is a run file, or something else, at the path; the beginnings of one that never came to be are
    nothing.
    """
    return path.exists() and not _is_unmade(path)


def create(path: Path) -> None:
    """Makes an empty run file, readable by its owner alone (0600), whole or not at all; the caller holds its lock."""
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.new")
    try:
        _remove_database(unfinished)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            _fill(unfinished, path)
            # What a full disk has left of another must not be taken for the log of this one.
            _remove_database(target)
            os.rename(unfinished, target)
            _sync_folder(target.parent)
        except BaseException:
            _remove_database(unfinished)
            raise
    except OSError as error:
        raise OutputError(f"cannot create the run file {path}: {error.strerror}") from None


def _fill(unfinished: Path, path: Path) -> None:
    schema = _script("schema.sql")
    with translated(path), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN; {schema}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
        )


def _remove_database(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_unmade(path: Path) -> bool:
    """Whether it is no more than what earlier versions left on a full disk: nothing, or a database without a table."""
    if path.stat().st_size > UNMADE_BYTES:
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    return (application, tables) == (0, 0)


def check(path: Path) -> None:
    """Raises RunFileError unless this is a whole run file of a format that this version reads; changes nothing."""
    if not path.exists():
        raise RunFileError(f"there is no run file {path}")
    with translated(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise RunFileError(f"{path} is not a run file of Rowmill")
            if version > FORMAT:
                raise RunFileError(
                    f"{path} has format {version}, this Rowmill reads up to {FORMAT}: use a newer Rowmill"
                )
            if path.stat().st_size <= CHECKED_BYTES:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise RunFileError(damage(path, str(found).splitlines()[0]))
        finally:
            connection.close()


def writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes.  Every commit is fsynced; temporary tables live on disk."""
    # Without adapters sqlite3 looks for methods of every None and every bytes that is bound, and raises and catches
    # an AttributeError for each: half of what an insert of a row costs.
    sqlite3.register_adapter(type(None), _null)
    sqlite3.register_adapter(bytes, bytes)
    connection = _opened(path, "journal_mode = WAL", "synchronous = FULL", "temp_store = FILE", "cache_size = -8192")
    with translated(path):
        _migrate(connection)
    return connection


def reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, also while another process writes."""
    return _opened(path, "query_only = ON", "cache_size = -4096")


def _migrate(connection: sqlite3.Connection) -> None:
    """Brings a run file of an older format up to this one; before that everything reads it as it is."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < FORMAT:
        script = _script("migration.sql")
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {FORMAT}; COMMIT;")


def _script(name: str) -> str:
    return resources.files("rowmill.store").joinpath(name).read_text(encoding="utf-8")


def _opened(path: Path, *pragmas: str) -> sqlite3.Connection:
    with translated(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in (*pragmas, "busy_timeout = 10000"):
            connection.execute(f"PRAGMA {pragma}")
        return connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into Rowmill's."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "full" in str(error) or "disk I/O" in str(error):
            raise StoreFullError(
                f"cannot write {path}: {error}; what was committed is safe, make room and run the same command again"
            ) from None
        if "locked" in str(error) or "busy" in str(error):
            raise LockedError(
                f"{path} is locked by another program; close it there and run the same command again"
            ) from None
        if "unable to open" in str(error):
            raise RunFileError(f"cannot open {path}: {error}") from None
        raise RunFileError(damage(path, str(error))) from None
    except sqlite3.DatabaseError as error:
        raise RunFileError(damage(path, str(error))) from None


def damage(path: Path, found: str) -> str:
    """What to tell the owner of a damaged run file."""
    output = str(path).removesuffix(".rowmill")
    return (
        f"the run file {path} is damaged ({found}); it was left as it is.  "
        f"`rowmill export {output} -o saved.jsonl` writes the rows that can still be read, "
        "and `--fresh` starts anew beside it"
    )
