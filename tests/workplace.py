"""A folder with an input, a simulator to send it to, and the command line run in it: called, or as a process."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.command_line import Ended, call

from rowmill.simulator import Behaviour, Simulator

SOURCE = Path(__file__).resolve().parent.parent / "src"


class Workplace:
    """`rowmill` runs in `folder`; `simulator` is what `-m sim --url` leads to."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self.folder = folder
        self.simulator = simulator
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_PROXY", "_proxy"))},
            "PYTHONPATH": str(SOURCE),
            "NO_COLOR": "1",
        }

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def write_rows(self, number: int, name: str = "in.csv", first: int = 0) -> Path:
        """Rows `id,text`; each text carries its own token, which the simulator answers with."""
        lines = [f"{n},[[row-{n}]] text number {n}" for n in range(first, first + number)]
        return self.write(name, "\n".join(["id,text", *lines]) + "\n")

    def arguments(self, source: str = "in.csv", *more: str) -> list[str]:
        """The usual run of `source` into out.jsonl."""
        prompt = [] if "-p" in more else ["-p", "Say it: {{ text }}"]
        output = [] if "-o" in more else ["-o", "out.jsonl"]
        return ["run", source, *prompt, "-m", "sim", "--url", self.simulator.url, *output, *more]

    def run(self, *more: str, source: str = "in.csv", **options: Any) -> Ended:
        return self.rowmill(*self.arguments(source, *more), **options)

    def rowmill(self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Ended:
        """A command, called in this process."""
        ended = call(arguments, self.folder, {**self.environment, **(env or {})}, stdin)
        assert "Traceback" not in ended.err, ended.err
        return ended

    def start(self, *more: str, source: str = "in.csv") -> subprocess.Popen[str]:
        """The usual run in a process of its own, left running."""
        return self.begin(*self.arguments(source, *more))

    def begin(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Any command in a process of its own, left running."""
        return subprocess.Popen(
            [sys.executable, "-m", "rowmill", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def output(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        text = (self.folder / name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]

    def csv_output(self, name: str) -> list[dict[str, str]]:
        with open(self.folder / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def requests(self) -> Mapping[str, int]:
        """Requests that the simulator saw for each row's token."""
        found: Mapping[str, int] = self.simulator.counters()["tokens"]
        return found

    def request_total(self) -> int:
        return sum(self.requests().values())


def until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Waits for something another process does; fails after 60 s or when that process has ended."""
    end = time.monotonic() + 60
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def own_tokens(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row's answer is its own token."""
    return all(row["answer"] == f"row-{row['id']}" for row in rows)


def fresh(folder: Path, behaviour: Behaviour | None = None) -> Workplace:
    """A workplace with a simulator that is started by the caller's `with`."""
    return Workplace(folder, Simulator(behaviour))
