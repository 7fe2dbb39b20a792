"""Runs commands as a user would and measures time, processor time and peak memory of the whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REVIEWS = ("it works very well", "broke after two days", "the colour is not what I saw", "would buy it again")


@dataclass(frozen=True)
class Measured:
    """One command: seconds on the clock and of processor, peak resident MB, what it printed."""

    seconds: float
    cpu_s: float
    peak_mb: float
    out: str

    def json(self) -> Any:
        return json.loads(self.out)


def rowmill(*arguments: str, folder: Path) -> Measured:
    """`rowmill ARGUMENTS` in `folder`; raises when it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{arguments}: exit {process.returncode}\n{err.decode()}")
    return Measured(
        time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.decode()
    )


def write_reviews(path: Path, rows: int, width: int = 100) -> None:
    """A CSV of `rows` rows of about `width` bytes."""
    with path.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        for number in range(rows):
            text = f"[[row-{number}]] {REVIEWS[number % len(REVIEWS)]}"
            file.write(f"{number},{text.ljust(width - 10, '.')}\n")
