"""The simulator in a process of its own, so that it does not share the interpreter with what is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def server(*options: str) -> Iterator[str]:
    """Yields the base URL; options are those of `python -m rowmill.simulator`."""
    command = [sys.executable, "-m", "rowmill.simulator", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()  # it prints its counters at the end, which may be more than a pipe holds
