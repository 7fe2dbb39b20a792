"""The single-writer lock of a run file: it dies with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rowmill.errors import LockedError, OutputError

PAUSE_S = 0.001
PAUSES = 1_000


class RunFileLock:
    """An exclusive lock on the run file, by whatever name it is called; it also says who holds it.

    It is that of the real file beside that of its link: `--fresh` gives the link another meaning.
    """

    def __init__(self, run_file: Path, pause: Callable[[float], object] = time.sleep) -> None:
        self._run_file = run_file
        link = Path(os.path.realpath(run_file.parent), run_file.name)
        paths = dict.fromkeys((Path(os.path.realpath(run_file)), link))
        self._files = [_LockFile(path.with_name(path.name + ".lock"), pause) for path in paths]

    def acquire(self) -> None:
        """Takes the lock or raises LockedError naming the holder."""
        self._refuse_other_names()
        try:
            for file in self._files:
                if not file.acquire():
                    raise LockedError(
                        f"{self._run_file} is being written by {file.holder() or 'another process'}; "
                        "wait for it to end or stop it"
                    )
        except OSError as error:
            self.release()
            raise OutputError(f"cannot write beside {self._run_file}: {error.strerror}") from None
        except LockedError:
            self.release()
            raise

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Gives the lock back and takes its file away."""
        for file in reversed(self._files):
            file.release()

    def holder(self) -> str | None:
        """Who holds the lock, None if nobody does."""
        return next((holder for file in self._files if (holder := file.holder()) is not None), None)

    def _refuse_other_names(self) -> None:
        """SQLite's log goes by the name: what is committed under one is not there under another."""
        with contextlib.suppress(OSError):
            names = os.stat(self._run_file).st_nlink
            if names > 1:
                raise OutputError(
                    f"the run file {self._run_file} has {names} names (hard links), and what is written under one is "
                    f"lost under another; make it a file of its own: "
                    f"cp {self._run_file} {self._run_file}.copy && mv {self._run_file}.copy {self._run_file}"
                )


class _LockFile:
    """`flock` on a file that is taken away with the lock."""

    def __init__(self, path: Path, pause: Callable[[float], object]) -> None:
        self._path = path
        self._pause = pause
        self._file: int | None = None

    def acquire(self) -> bool:
        """False where another process holds it.  Raises OSError."""
        for _ in range(PAUSES):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            if _locked(file, fcntl.LOCK_EX) and self._is_current(file):
                self._file = file
                self._describe()
                return True
            # Who only looks shares the lock for a moment, as it can be shared here then.
            is_held = not _locked(file, fcntl.LOCK_SH)
            os.close(file)
            if is_held:
                return False
            self._pause(PAUSE_S)
        return False

    def release(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def holder(self) -> str | None:
        """Who holds it, None if nobody does."""
        try:
            with open(self._path, encoding="utf-8") as file:
                if not _locked(file.fileno(), fcntl.LOCK_SH):
                    return _holder_of(file.read())
        except OSError:
            pass
        return None

    def _describe(self) -> None:
        """Who holds it, for others to read; a full disk does not keep anybody from holding it."""
        assert self._file is not None
        words = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()})
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, words.encode(), 0)

    def _is_current(self, file: int) -> bool:
        """Invariant: the locked file is the one at the path, not one that its last holder has taken away."""
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))
        except FileNotFoundError:
            return False


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder_of(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["started"]))
        return f"process {holder['pid']} on {holder['host']} (since {since})"
    except (ValueError, KeyError, TypeError):
        return "another process"
