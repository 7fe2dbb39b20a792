"""The single-writer lock of a run file: it dies with the process that holds it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import IO, Self

from rowmill.errors import LockedError, OutputError


class RunFileLock:
    """An exclusive lock on RUN_FILE.lock, which also says who holds it."""

    def __init__(self, run_file: Path) -> None:
        self._run_file = run_file
        self._path = run_file.with_name(run_file.name + ".lock")
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Takes the lock or raises LockedError naming the holder."""
        while self._file is None:
            try:
                file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115 - held open while the run lasts
            except OSError as error:
                raise OutputError(f"cannot write beside {self._run_file}: {error.strerror}") from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise LockedError(
                    f"{self._run_file} is being written by {self.holder() or 'another process'}; "
                    "wait for it to end or stop it"
                ) from None
            if self._is_current(file):
                self._file = file
            else:
                file.close()
        self._file.seek(0)
        self._file.truncate()
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}, self._file)
        self._file.flush()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Gives the lock back and takes its file away."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def holder(self) -> str | None:
        """Who holds the lock, None if nobody does."""
        try:
            with open(self._path, encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return _describe(file.read())
        except OSError:
            pass
        return None

    def _is_current(self, file: IO[str]) -> bool:
        """Invariant: the locked file is the one at the path, not one that its last holder has taken away."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["started"]))
        return f"process {holder['pid']} on {holder['host']} (since {since})"
    except (ValueError, KeyError, TypeError):
        return "another process"
