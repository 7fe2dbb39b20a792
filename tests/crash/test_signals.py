"""SIGINT, SIGTERM and SIGHUP at random moments: starting, matching, sending, waiting, exporting, closing."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.answering import AnsweringServer, last_text
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator

SIGNALS = 20  # in each part
ROWS = 60
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}


def write_rows(workplace: Workplace, chance: random.Random) -> None:
    """In an order of its own, so that a resume has to match."""
    numbers = list(range(ROWS))
    chance.shuffle(numbers)
    workplace.write("in.csv", "".join(["text\n", *(f"row {number}\n" for number in numbers)]))


def end_codes(number: signal.Signals) -> set[int]:
    """It ended by itself before the signal, by it, or before Python could listen to it."""
    return {0, CODES[number], 128 + number, -number}


def has_reached_rowmill(err: str) -> bool:
    """Whether a traceback is any of ours: the interpreter may have been hit while it started."""
    return ("Traceback" not in err and "Fatal Python error" not in err) or "/rowmill/" in err


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(10))
def test_signals_at_random_moments_end_a_run_in_order(part: int) -> None:
    chance = random.Random(part)
    folder = Path(tempfile.mkdtemp(prefix="rowmill-signals-"))
    try:
        with Simulator(Behaviour()) as simulator, AnsweringServer(last_text, latency_s=0.02) as server:
            workplace = Workplace(folder, simulator)
            options = ["-p", "{{ text }}", "-m", "sim", "--url", server.url, "--in-flight", "4", "-o", "out.jsonl"]
            for _ in range(SIGNALS):
                if (folder / "out.jsonl").exists():
                    for path in folder.iterdir():
                        path.unlink()
                write_rows(workplace, chance)
                number, times = chance.choice([*CODES]), chance.choice([1, 1, 2, 3])
                process = workplace.begin("run", "in.csv", *options)
                for _ in range(times):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(chance.random() * 0.8)
                    process.send_signal(number)
                _, err = process.communicate(timeout=30)
                if not has_reached_rowmill(err):
                    continue
                assert process.returncode in end_codes(number), (number, times, err)
                assert "Traceback" not in err, (number, times, err)
                assert "bug" not in err, (number, times, err)
            write_rows(workplace, chance)
            ended = workplace.rowmill("run", "in.csv", *options)
            assert ended.code == 0, ended.err
            assert all(row["answer"] == row["text"] for row in workplace.output())
            assert len(workplace.output()) == ROWS
    finally:
        shutil.rmtree(folder)
