"""Thirty rows, two providers: twenty rows to the good one, ten to the cheap one, and the good one dies at row eight.

    python examples/two_providers.py

Both providers are Rowmill's simulator on this machine: no key, no cost.  The good one takes 0.5 s for an answer,
works on four rows at a time, and is killed as soon as it has seen its eighth request.  What it had not answered goes
to the other; every row says who answered it.
"""

from __future__ import annotations

import csv
import itertools
import tempfile
import threading
import time
from pathlib import Path

import rowmill
from rowmill.simulator import Behaviour, Simulator

ROWS = 30


def main() -> None:
    good = Simulator(Behaviour(latency="0.5"))
    with tempfile.TemporaryDirectory() as folder, good, Simulator(Behaviour(latency="0.1")) as cheap:
        source, output = Path(folder) / "in.csv", Path(folder) / "out.csv"
        source.write_text("text\n" + "".join(f"[[question-{n}]]\n" for n in range(ROWS)), encoding="utf-8")
        threading.Thread(target=kill_after, args=(good, 8), daemon=True).start()
        result = rowmill.run(
            source,
            prompt="Answer: {{ text }}",
            output=output,
            endpoints=[
                {"model": "good", "url": good.url, "take": 20, "in_flight": 4},
                {"model": "cheap", "url": cheap.url, "take": 10, "in_flight": 4},
            ],
        )
        show(output)
        print(f"{dict(result.counts)}, exit code {result.exit_code}")


def kill_after(simulator: Simulator, requests: int) -> None:
    """Ends a simulator, connections and all, once it has seen that many requests."""
    while sum(simulator.counters()["tokens"].values()) < requests:
        time.sleep(0.02)
    simulator.stop()


def show(output: Path) -> None:
    """Prints which provider answered which rows, and that every answer is its own row's."""
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for endpoint, run in itertools.groupby(rows, key=lambda row: row["_endpoint"]):
        numbers = [row["_row"] for row in run]
        print(f"rows {numbers[0]:>2} to {numbers[-1]:>2}: {endpoint}")
    own = sum(row["answer"] in row["text"] for row in rows)
    print(f"{len(rows)} rows in order, {own} with their own answer")


if __name__ == "__main__":
    main()
