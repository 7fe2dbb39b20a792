"""Owns a file that appears whole or not at all; must not know what is in it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rowmill.errors import OutputError, StoreFullError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_writable(path: str) -> None:
    """Raises OutputError unless a file could be written there; creates nothing."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    if not folder.is_dir():
        raise OutputError(f"{path} cannot be written: there is no folder {folder}")
    if target.is_dir():
        raise OutputError(f"{path} cannot be written: it is a folder")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise OutputError(f"{path} cannot be written: it is no regular file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path} cannot be written: no permission to write into {folder}")


class AtomicFile:
    """Written under a temporary name beside its own, which it gets at `commit`.

    Every fault is an OutputError, a full disk a StoreFullError; the temporary file is gone by then.
    """

    def __init__(self, path: str) -> None:
        check_writable(path)
        self._path = path
        # A link stays a link: what it points to is replaced.
        self._target = Path(os.path.realpath(path))
        self._temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.tmp")
        with self.translated():
            _remove_leftovers(self._target)
            self.file: BinaryIO = open(self._temporary, "wb")  # noqa: SIM115 closed by commit and abort

    def write(self, content: bytes) -> None:
        """Appends."""
        with self.translated():
            self.file.write(content)

    def commit(self) -> None:
        """Makes the file appear under its name, fsynced."""
        with self.translated():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self._temporary, self._target)
            _sync_folder(self._target.parent)

    def abort(self) -> None:
        """Takes the temporary file away; may be called at any time, also twice."""
        # Closing flushes, which fails again on a full disk.
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turns an OSError inside into ours, with the temporary file removed."""
        try:
            yield
        except OSError as error:
            if hasattr(self, "file"):
                self.abort()
            if error.errno in _FULL:
                raise StoreFullError(
                    f"the disk is full: {self._path} could not be written, its unfinished part was removed; "
                    "free some space and run the same command again"
                ) from error
            raise OutputError(f"{self._path} cannot be written: {error.strerror or error}") from error


def _remove_leftovers(target: Path) -> None:
    """Takes away what a killed process has left half written for the same name."""
    for entry in os.scandir(target.parent):
        start, end = f".{target.name}.", ".tmp"
        writer = entry.name[len(start) : -len(end)]
        if entry.name.startswith(start) and entry.name.endswith(end) and writer.isdigit() and not _lives(int(writer)):
            os.unlink(entry.path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
