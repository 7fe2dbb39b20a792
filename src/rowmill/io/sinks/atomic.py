"""Owns a file that appears whole or not at all, here or elsewhere; must not know what is in it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rowmill.core.names.files import is_remote, scratch_path
from rowmill.errors import OutputError, StoreFullError
from rowmill.io import files
from rowmill.io.files import remote

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PART = "part-"


def check_writable(path: str, *, in_parts: bool = False) -> None:
    """Raises OutputError unless a file (or a folder of parts) could be written there; creates nothing."""
    with translated(path):
        if is_remote(path):
            remote.check_writable(path)
            _check_here(path, Path(scratch_path(path)).parent)
            if files.is_folder(path):
                _check_replaceable(path, remote.names_in(path), in_parts)
            return
        target = Path(os.path.realpath(path))
        _check_here(path, target.parent)
        if target.is_dir():
            _check_replaceable(path, os.listdir(target), in_parts)
        elif target.exists() and not stat.S_ISREG(target.stat().st_mode):
            raise OutputError(f"{path} cannot be written: it is no regular file")


def _check_here(path: str, folder: Path) -> None:
    if not folder.is_dir():
        raise OutputError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path} cannot be written: no permission to write into {folder}")


def _check_replaceable(path: str, names: list[str], in_parts: bool) -> None:
    """A folder of parts may be replaced by the output's next version, and no other."""
    if not in_parts:
        raise OutputError(f"{path} cannot be written: it is a folder")
    strange = next((name for name in names if not name.startswith(_PART)), None)
    if strange is not None:
        raise OutputError(f"{path} cannot be written: it is a folder that holds something else than parts ({strange})")


class PendingOutput:
    """Where an output is to appear, and the name beside it under which it is made until then.

    What belongs elsewhere is made in the current folder.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # A link stays a link: what it points to is replaced.
        self._target = Path(scratch_path(path) if is_remote(path) else os.path.realpath(path))
        self.unfinished = self._target.with_name(f".{self._target.name}.{os.getpid()}.tmp")
        self._old_modes = _modes_of_parts(path, self._target)

    def make_folder(self) -> None:
        """A folder for parts; that of an output which is replaced is for its owner alone until it takes its place."""
        os.mkdir(self.unfinished, 0o777 if self._old_modes is None else 0o700)

    def clear(self) -> None:
        """Takes away what a killed process has left half made for the same output."""
        _remove_leftovers(self._target)

    def fill(self) -> None:
        """Makes what is finished appear under its name: a file, or a folder of parts with those before it gone."""
        if is_remote(self._path):
            self._send()
        else:
            self._put()
            _sync_folder(self._target.parent)

    def discard(self) -> None:
        """Takes the unfinished away; may be called at any time, also twice."""
        with contextlib.suppress(OSError):
            files.remove(str(self.unfinished))

    def _put(self) -> None:
        if not self._target.is_dir() and not self.unfinished.is_dir():
            os.replace(self.unfinished, self._target)
            return
        if self._old_modes is not None:
            self._take_modes(*self._old_modes)
        # A folder cannot be replaced in one step: between these two the output is not there.
        old = self.unfinished.with_name(f".{self._target.name}.{os.getpid()}.old.tmp")
        if self._target.exists():
            os.replace(self._target, old)
        os.replace(self.unfinished, self._target)
        files.remove(str(old))

    def _take_modes(self, folder: int, part: int | None) -> None:
        """Those of the parts before, which others are to read as little as they did."""
        if part is not None:
            for entry in os.scandir(self.unfinished):
                os.chmod(entry.path, part)
        os.chmod(self.unfinished, folder)

    def _send(self) -> None:
        if self.unfinished.is_dir():
            self._send_parts()
        else:
            remote.upload(str(self.unfinished), self._path)
        files.remove(str(self.unfinished))

    def _send_parts(self) -> None:
        """All parts or none: those that were sent are taken back where one cannot be."""
        before = set(remote.names_in(self._path)) if files.is_folder(self._path) else set()
        names = sorted(entry.name for entry in os.scandir(self.unfinished))
        sent = []
        try:
            for name in names:
                sent.append(name)
                remote.upload(str(self.unfinished / name), f"{self._path}/{name}")
        except BaseException:
            for name in sent:
                with contextlib.suppress(OSError):
                    remote.remove(f"{self._path}/{name}")
            raise
        for name in before.difference(names):
            remote.remove(f"{self._path}/{name}")


class AtomicFile:
    """Written under a temporary name beside its own, which it gets at `commit`; one elsewhere is sent there then.

    Every fault is an OutputError, a full disk a StoreFullError; the temporary file is gone by then.
    """

    def __init__(self, path: str) -> None:
        check_writable(path)
        self._path = path
        self._pending = PendingOutput(path)
        with self.translated():
            self._pending.clear()
            self.file: BinaryIO = _new_file(self._pending.unfinished, like=path)

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
            self._pending.fill()

    def abort(self) -> None:
        """Takes the temporary file away; may be called at any time, also twice."""
        # Closing flushes, which fails again on a full disk.
        with contextlib.suppress(OSError):
            self.file.close()
        self._pending.discard()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turns an OSError inside into ours, with the temporary file removed."""
        with translated(self._path):
            try:
                yield
            except OSError:
                if hasattr(self, "file"):
                    self.abort()
                raise


def _new_file(path: Path, *, like: str) -> BinaryIO:
    """A file that was not there, with the mode of the one that it replaces, else as the umask has it.

    At no moment can anybody read it who could not read that one; what is on its way elsewhere is for its owner alone.
    Follows no symbolic link that somebody else has laid under its name.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    mode = mode_of(like)
    is_open = mode is None and not is_remote(like)
    file = os.fdopen(os.open(path, flags, 0o666 if is_open else 0o600), "wb")
    if mode is not None:
        with contextlib.suppress(OSError):
            os.chmod(path, mode)
    return file


def _modes_of_parts(path: str, folder: Path) -> tuple[int, int | None] | None:
    """The modes of a folder of parts and of its first part; None where no folder is replaced."""
    if is_remote(path):
        return 0o700, None
    mode = mode_of(folder)
    if mode is None or not folder.is_dir():
        return None
    parts = (mode_of(entry.path) for entry in os.scandir(folder))
    return mode, next(parts, None)


def mode_of(path: str | Path) -> int | None:
    """Who may do what with a file or folder of this machine; None where it is not there."""
    try:
        return os.stat(path).st_mode & 0o777
    except OSError:
        return None


def remove(path: str) -> None:
    """Takes an output away, if it is there; raises OutputError."""
    with translated(path):
        files.remove(path)


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turns an OSError inside into an OutputError about `path`, a full disk into a StoreFullError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(
                f"the disk is full: {path} could not be written, its unfinished part was removed; "
                "free some space and run the same command again"
            ) from error
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def _remove_leftovers(target: Path) -> None:
    ours = re.compile(re.escape(f".{target.name}.") + r"(\d+)(?:\.old)?\.tmp")
    for entry in os.scandir(target.parent):
        found = ours.fullmatch(entry.name)
        if found and not _lives(int(found[1])):
            files.remove(entry.path)


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
