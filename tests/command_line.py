"""The command line, called in this process: what a process of its own would show, without starting one.

Signals, kills, terminals and broken pipes need a real process: `Workplace.begin`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowmill.cli import main


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def call(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str | None = None) -> Ended:
    """`rowmill ARGUMENTS` in `folder`, with this environment and no other; standard input is empty unless given."""
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(_stream()) for _ in range(3))
        given.write(stdin or "")
        given.seek(0)
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(_environment(environment))
        stack.enter_context(_own_modules(folder))
        stack.enter_context(_standard_input(given))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = _exit_code(arguments)
        return Ended(code, _content(out), _content(err))


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        main(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    raise AssertionError("the command line has returned instead of exiting")


def _stream() -> io.TextIOWrapper:
    """A real file, for a stream of a process has a descriptor, a buffer and no terminal."""
    return io.TextIOWrapper(tempfile.TemporaryFile(), encoding="utf-8", newline="")


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _standard_input(stream: io.TextIOWrapper) -> Iterator[None]:
    before, sys.stdin = sys.stdin, stream
    try:
        yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """What the command imports from the folder, a user's functions, the next one may find there written anew."""
    path, below = list(sys.path), f"{folder}{os.sep}"
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(below):
                del sys.modules[name]
