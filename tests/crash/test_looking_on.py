"""Exports, looks and second starts while a run is at work, over many interleavings: right rows, or words why not."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.answering import AnsweringServer, last_text
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator

if TYPE_CHECKING:
    from tests.command_line import Ended

ROWS = 120
LOOKS = 25


def write_rows(workplace: Workplace, chance: random.Random) -> None:
    """The same rows in another order, a few of them left out: a resume matches them."""
    numbers = chance.sample(range(ROWS), ROWS - chance.randint(0, 5))
    workplace.write("in.csv", "".join(["text\n", *(f"row {number}\n" for number in numbers)]))


def check_rows(rows: list[dict[str, object]]) -> None:
    assert all(row["answer"] == row["text"] for row in rows)
    indices = [row["_row"] for row in rows]
    assert indices == sorted(set(indices))  # type: ignore[type-var]


def look(workplace: Workplace, chance: random.Random, run: list[str]) -> None:
    """One command beside the run: it does its work or says why it may not."""
    kind = chance.choice(["export", "export", "status", "rows", "retry", "run"])
    words = {
        "export": ["export", "out.jsonl", "-o", "export.jsonl"],
        "status": ["status", "out.jsonl", "--json"],
        "rows": ["rows", "out.jsonl", "--json"],
        "retry": ["retry", "out.jsonl", "--status", "failed"],
        "run": run,
    }[kind]
    ended = workplace.rowmill(*words)
    assert ended.code in (0, 2), ended.err
    if ended.code == 2:
        assert any(words in ended.err for words in REFUSALS), ended.err
    elif kind == "export":
        check_rows(workplace.output("export.jsonl"))
    elif kind == "rows":
        check_shown(ended)


REFUSALS = ("is being written by process", "there is no run file", "holds no job yet")


def check_shown(ended: Ended) -> None:
    for line in ended.out.splitlines():
        row = json.loads(line)
        assert row["status"] in ("ok", "pending")
        if row["status"] == "ok":
            assert row["answer"] == {"answer": row["input"]["text"]}, row


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(10))
def test_looks_beside_a_run_show_right_rows_and_second_starts_are_refused(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    with Simulator(Behaviour()) as simulator, AnsweringServer(last_text, latency_s=0.03) as server:
        workplace = Workplace(tmp_path, simulator)
        run = ["run", "in.csv", "-p", "{{ text }}", "-m", "sim", "--url", server.url, "-o", "out.jsonl"]
        write_rows(workplace, chance)
        process: subprocess.Popen[str] | None = None
        for _ in range(LOOKS):
            if process is None or process.poll() is not None or chance.random() < 0.1:
                if process is not None:
                    process.kill()
                    process.communicate()
                    write_rows(workplace, chance)
                process = workplace.begin(*run, "--in-flight", "3")
            look(workplace, chance, run)
        assert process is not None
        process.kill()
        process.communicate()
        assert workplace.rowmill(*run).code == 0
        check_rows(workplace.output())
