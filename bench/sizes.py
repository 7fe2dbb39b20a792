"""What grows with the number of rows and what must not: memory, the run file, resume and export; starting up."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import environment, rowmill, write_reviews
from bench.neutral import neutral
from bench.results import keep

SMALL_ROWS, LARGE_ROWS = 100_000, 1_000_000
IN_FLIGHT = "1000"
ROW_BYTES = 150
STARTS = 7


def main() -> None:
    """Peaks of memory at both sizes, then resume and exports of the larger; about five minutes."""
    found: dict[str, Any] = {
        "import_ms": _start_ms("-c", "import rowmill"),
        "help_ms": _start_ms("-m", "rowmill", "--help"),
    }
    print(f"import {found['import_ms']:.0f} ms, --help {found['help_ms']:.0f} ms", flush=True)
    with neutral() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, rows in (("small", SMALL_ROWS), ("large", LARGE_ROWS)):
            write_reviews(folder / f"{size}.csv", rows, ROW_BYTES)
            command = _command(size, server.url(0))
            ran = rowmill(*command, folder=folder, watched=True)
            result = ran.json()
            size_bytes = (folder / f"{size}.jsonl.rowmill").stat().st_size
            found[size] = {
                "rows": rows,
                "peak_mb": ran.peak_mb,
                "rows_per_s": rows / result["seconds"],
                "cpu_us": ran.cpu_s / rows * 1e6,
                "run_file_bytes_a_row": size_bytes / rows,
                "memory_mb": ran.memory_mb,
            }
            print(f"{rows:,} rows: {ran.peak_mb:.0f} MB at the peak, {size_bytes / rows:.0f} bytes a row", flush=True)
        found |= _again(folder, command)
    keep("sizes", found)


def _command(size: str, url: str) -> tuple[str, ...]:
    asked = ("-p", "Label this review: {{ text }}", "-m", "bench", "--url", url, "--in-flight", IN_FLIGHT)
    return ("run", f"{size}.csv", *asked, "-o", f"{size}.jsonl", "--json", "--quiet")


def _again(folder: Path, command: tuple[str, ...]) -> dict[str, float]:
    """Seconds from the start of a run whose rows are all done but one to its first request, and of exports."""
    with (folder / "large.csv").open("a", encoding="utf-8") as file:
        file.write(f"{LARGE_ROWS},one more row\n")
    resumed = rowmill(*command, folder=folder)
    found = {"resume_s": _sent_at(folder / "large.jsonl.rowmill") - resumed.started_at, "resume_mb": resumed.peak_mb}
    for target in ("jsonl", "parquet"):
        exported = rowmill("export", "large.jsonl", "-o", f"again.{target}", folder=folder)
        found |= {f"export_{target}_s": exported.seconds, f"export_{target}_mb": exported.peak_mb}
    for name, value in found.items():
        print(f"{name} {value:.1f}", flush=True)
    return found


def _sent_at(run_file: Path) -> float:
    """Unix time of the one request of the row that was added."""
    connection = sqlite3.connect(run_file)
    ((sent_at,),) = connection.execute("SELECT sent_at FROM attempts WHERE id > ?", (LARGE_ROWS << 16,)).fetchall()
    connection.close()
    return float(sent_at)


def _start_ms(*arguments: str) -> float:
    """The median of several starts; the first one, which compiles, is left out."""
    taken = []
    for _ in range(STARTS + 1):
        started_s = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment())
        taken.append((time.perf_counter() - started_s) * 1000)
    return median(taken[1:])
