"""The process's standard streams, made fit to use: closed ones lead nowhere, and none ends a command on a character."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def mend_streams() -> None:
    """To be called before any file is opened: a closed descriptor below 3 would be given to the next one.

    What an encoding cannot show is written as an escape.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def stdout_fault() -> str | None:
    """Why standard output cannot be written, None where it can; then nothing is written to it any more.

    Only a line that is written tells: what a write has failed with is no longer there to be flushed.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        silence_stdout()
        return error.strerror or str(error)
    except ValueError:
        return "it is closed"
    return None


def silence_stdout() -> None:
    """Nobody can read it: nothing may fail on it, not even the interpreter's last flush."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
