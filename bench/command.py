"""Runs commands as a user would and measures time, processor time and peak memory of the whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parent.parent / "src"
REVIEWS = ("it works very well", "broke after two days", "the colour is not what I saw", "would buy it again")


WATCH_S = 0.5


@dataclass(frozen=True)
class Measured:
    """One command: seconds on the clock and of processor, peak resident MB, what it printed.

    `memory_mb` are resident MB every half second where it was watched; `started_at` is Unix time.
    """

    seconds: float
    cpu_s: float
    peak_mb: float
    out: str
    started_at: float
    memory_mb: Sequence[float] = ()

    def json(self) -> Any:
        return json.loads(self.out)


def environment() -> dict[str, str]:
    """As a user has it: with Rowmill to be found and compiled modules kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(SOURCES)}


def rowmill(*arguments: str, folder: Path, watched: bool = False) -> Measured:
    """`rowmill ARGUMENTS` in `folder`; raises when it fails."""
    started, started_at = time.perf_counter(), time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    memory_mb: list[float] = []
    if watched:
        threading.Thread(target=_watch, args=(process.pid, memory_mb), daemon=True).start()
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{arguments}: exit {process.returncode}\n{err.decode()}")
    seconds, cpu_s = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
    return Measured(seconds, cpu_s, usage.ru_maxrss / 1024, out.decode(), started_at, memory_mb)


def _watch(pid: int, memory_mb: list[float]) -> None:
    """Notes the resident size until the process is gone."""
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    try:
        while True:
            memory_mb.append(round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page_mb, 1))
            time.sleep(WATCH_S)
    except (OSError, IndexError):
        return


def write_reviews(path: Path, rows: int, width: int = 100) -> None:
    """A CSV of `rows` rows of about `width` bytes."""
    with path.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        for number in range(rows):
            text = f"[[row-{number}]] {REVIEWS[number % len(REVIEWS)]}"
            file.write(f"{number},{text.ljust(width - 10, '.')}\n")
