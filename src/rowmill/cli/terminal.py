"""What commands share towards the terminal: questions, standard output, errors as words, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rowmill.errors import ExitCode, JobError, RowmillError, StoreFullError


def can_ask() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Asks on stderr; anything but yes is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_lines(lines: list[str]) -> None:
    """Lines that were asked for, on standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def say(*lines: str) -> None:
    """Lines for the user on stderr."""
    for line in lines:
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
        _silence_stdout()
        return 0
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception:
        import traceback

        traceback.print_exc()
        say("rowmill: error: this is a bug in Rowmill; please report it with the lines above")
        return ExitCode.BUG


def _silence_stdout() -> None:
    """The reader has gone: nothing may fail on it, not even the interpreter's last flush."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
