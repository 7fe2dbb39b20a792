"""The engine against the transport alone, its memory, its resume and its export."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.command import rowmill, write_reviews
from bench.server import server

PROMPT = ("-p", "Label this review: {{ text }}", "-m", "sim")


def throughput(rows: int = 60_000, in_flight: int = 128) -> None:
    """Rows a second with the store on, beside what `pyreqwest` alone carries on the same server; three pairs."""
    with server() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reviews(folder / "in.csv", rows)
        ratios = []
        for turn in range(3):
            bare = [sys.executable, "-m", "bench.bare", url, str(rows), str(in_flight)]
            alone = float(subprocess.run(bare, capture_output=True, text=True, check=True).stdout)
            arguments = ("run", "in.csv", *PROMPT, "--url", url, "-o", f"out{turn}.jsonl", "--json", "--quiet")
            ran = rowmill(*arguments, "--in-flight", str(in_flight), folder=folder)
            result = ran.json()
            speed = result["rows"] / result["seconds"]
            ratios.append(speed / alone)
            print(
                f"throughput, {in_flight} in flight, no delay: {speed:,.0f} rows/s, {ran.cpu_s / rows * 1e6:.0f} µs "
                f"of CPU a row; pyreqwest alone {alone:,.0f} requests/s; ratio {speed / alone:.2f}"
            )
        print(f"median ratio {sorted(ratios)[1]:.2f} (reach: 0.33)")


def memory(small: int = 50_000, large: int = 500_000, in_flight: int = 64) -> None:
    """Peak memory at two sizes, then resume and export of the larger."""
    with server() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peaks = []
        for rows in (small, large):
            write_reviews(folder / f"{rows}.csv", rows)
            command = ("run", f"{rows}.csv", *PROMPT, "--url", url, "-o", f"{rows}.jsonl", "--json", "--quiet")
            ran = rowmill(*command, "--in-flight", str(in_flight), folder=folder)
            peaks.append(ran.peak_mb)
            size = (folder / f"{rows}.jsonl.rowmill").stat().st_size / rows
            print(f"{rows:,} rows: {ran.peak_mb:.0f} MB at the peak, {size:.0f} bytes a row in the run file")
        print(f"difference {peaks[1] - peaks[0]:.0f} MB (reach: 20)")
        again = rowmill(*command, "--in-flight", str(in_flight), folder=folder)
        print(f"finished run recognised at {large / again.seconds:,.0f} rows/s (reach: 50,000)")
        for target in ("again.jsonl", "again.parquet"):
            exported = rowmill("export", f"{large}.jsonl", "-o", target, folder=folder)
            print(
                f"export to {target.split('.')[1]} at {large / exported.seconds:,.0f} rows/s (reach for JSONL: 80,000)"
            )


def main() -> None:
    throughput()
    memory()


if __name__ == "__main__":
    main()
