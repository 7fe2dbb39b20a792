"""A real `rowmill run` is killed with SIGKILL at random moments, twenty times over; nothing may be lost."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from tests.workplace import Workplace, kill, own_tokens, until

from rowmill.simulator import Behaviour, Simulator

pytestmark = pytest.mark.slow

ROWS = 4000
IN_FLIGHT = 16
COMMIT_WINDOW = 1000
KILLS = 20


@pytest.mark.timeout(600)
def test_twenty_kills_lose_nothing_and_pay_little_twice(tmp_path: Path) -> None:
    chance = random.Random(17)
    with Simulator(Behaviour(latency="0.01-0.05")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(ROWS)
        kills = 0
        while kills < KILLS:
            seen = workplace.request_total()
            process = workplace.start("--in-flight", str(IN_FLIGHT))
            goal = seen + chance.randint(0, ROWS // KILLS)
            try:
                until(lambda goal=goal: workplace.request_total() > goal, process)  # type: ignore[misc]
            except AssertionError:
                break  # it has finished before the kill
            kill(process)
            kills += 1
            assert not (tmp_path / "out.jsonl").exists()
        ended = workplace.run("--in-flight", str(IN_FLIGHT), "--json")
        rows = workplace.output()
        assert ended.code == 0, ended.err
        assert kills >= KILLS // 2
        assert [int(row["id"]) for row in rows] == list(range(ROWS))
        assert own_tokens(rows)
        assert workplace.request_total() <= ROWS + kills * (IN_FLIGHT + COMMIT_WINDOW)
        assert workplace.request_total() < ROWS * 1.5, "far more was sent again than commits every 200 ms allow"


def test_the_lock_of_a_killed_run_is_free(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.2")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(100)
        process = workplace.start("--in-flight", "2")
        until(lambda: workplace.request_total() > 4, process)
        held = workplace.run()
        assert held.code == 2
        assert f"process {process.pid}" in held.err
        kill(process)
        assert workplace.run("--in-flight", "50").code == 0


def test_a_kill_while_a_spool_of_standard_input_is_read_loses_no_spooled_row(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.05")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        lines = "".join(f'{{"id": {n}, "text": "[[row-{n}]]"}}\n' for n in range(500))
        source = workplace.write("rows.jsonl", lines)
        with open(source) as stdin:
            process = subprocess.Popen(
                run_command(workplace, "--in-flight", "4"),
                cwd=tmp_path,
                env=workplace.environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        until(lambda: workplace.request_total() > 60, process)
        kill(process)
        ended = workplace.rowmill(*workplace.arguments("-"), "--in-flight", "50")
        assert ended.code == 0, ended.err
        rows = workplace.output()
        assert [row["id"] for row in rows] == list(range(500))
        assert own_tokens(rows)


def run_command(workplace: Workplace, *more: str) -> list[str]:
    import sys

    return [sys.executable, "-m", "rowmill", *workplace.arguments("-", *more)]
