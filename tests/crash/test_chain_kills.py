"""Chains of prompt, model and parser under `RunnableBatch` with a run file: killed with SIGKILL and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.workplace import SOURCE, kill, until

pytestmark = pytest.mark.slow

INPUTS = 500
KILLED = (("abatch", 60), ("abatch_as_completed", 240))  # at so many calls in all
PROGRAM = Path(__file__).with_name("labelling.py")


def start(folder: Path, way: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), way, str(INPUTS)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def calls(folder: Path) -> list[str]:
    log = folder / "calls.txt"
    return log.read_text().splitlines() if log.exists() else []


def test_a_killed_batch_goes_on_and_pays_little_twice(tmp_path: Path) -> None:
    for way, goal in KILLED:
        process = start(tmp_path, way)
        until(lambda goal=goal: len(calls(tmp_path)) >= goal, process)  # type: ignore[misc]
        kill(process)
        assert not (tmp_path / "outputs.json").exists()
    last = start(tmp_path, "abatch_as_completed")
    _, errors = last.communicate(timeout=100)
    assert last.returncode == 0, errors
    names = ["good" if n % 3 == 0 else "cheap" for n in range(INPUTS)]
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    assert outputs == [[f"{name} input {n}", "TextAccessor"] for n, name in enumerate(names)]
    made = Counter(calls(tmp_path))
    assert set(made) == {f"input {n}" for n in range(INPUTS)}
    assert sum(made.values()) < INPUTS * 1.5, "far more was called for again than commits every 200 ms allow"
