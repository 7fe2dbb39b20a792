"""What commands share towards the terminal: questions, standard output, errors as words, exit codes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rowmill.cli.streams import silence_stdout, stdout_fault
from rowmill.errors import ExitCode, JobError, OutputError, RowmillError, StoreFullError


def can_ask() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Asks on stderr; anything but yes is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output; escaped where its encoding cannot show all characters."""
    shows_all = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    _write(json.dumps(value, ensure_ascii=not shows_all, default=str) + "\n")


def print_lines(lines: list[str]) -> None:
    """Lines that were asked for, on standard output."""
    _write("".join(f"{line}\n" for line in lines))


def _write(text: str) -> None:
    """Raises OutputError where standard output takes nothing; that its reader has gone stays a BrokenPipeError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise OutputError(f"cannot write to standard output: {error.strerror or error}") from None


def say(*lines: str) -> None:
    """Lines for the user on stderr; one that nobody can read is no reason to fail."""
    for line in lines:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr)


def guarded(work: Callable[[], int]) -> int:
    """Runs `work` and returns its exit code; whatever it raises becomes words on stderr and an exit code."""
    try:
        return work()
    except RowmillError as error:
        for fault in error.faults if isinstance(error, JobError) else [str(error)]:
            say(f"rowmill: error: {fault}")
        return ExitCode.STOPPED if isinstance(error, StoreFullError) else ExitCode.NOTHING_SENT
    except BrokenPipeError:
        silence_stdout()
        return 0
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        why = stdout_fault() if isinstance(error, OSError) else None
        if why is not None:
            say(f"rowmill: error: cannot write to standard output: {why}")
            return ExitCode.NOTHING_SENT
        import traceback

        traceback.print_exc()
        say("rowmill: error: this is a bug in Rowmill; please report it with the lines above")
        return ExitCode.BUG
