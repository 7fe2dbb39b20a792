"""What a run will cost is said before its first request, and a dear one is agreed to on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator

# 100 tokens of output for 20 USD: likely half of them, so a row costs about 10 USD, at least 0.2 and at most 20.
PRICE = {"input": 0, "output": 0.2, "unit": "token"}


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    with Simulator(Behaviour(output_tokens=10)) as simulator:
        made = Workplace(tmp_path, simulator)
        write_job(made, 10)
        yield made


def write_job(workplace: Workplace, rows: int, **keys: object) -> None:
    workplace.write_rows(rows)
    endpoint = {"model": "sim", "url": workplace.simulator.url, "price": PRICE}
    job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
    workplace.write("job.yaml", json.dumps({**job, "params": {"max_tokens": 100}, **keys}))


class Talk(NamedTuple):
    code: int
    shown: str
    asked: int


def on_a_terminal(workplace: Workplace, *arguments: str, answer: str = "n") -> Talk:
    """Runs a command whose standard input and standard error are a terminal; each question gets the answer."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", *arguments],
        cwd=workplace.folder,
        env={**workplace.environment, "TERM": "dumb"},
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    shown, asked = "", 0
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while part := os.read(master, 4096):
            shown += part.decode("utf-8", "replace")
            if shown.count("[y/N]") > asked:
                asked += 1
                os.write(master, f"{answer}\n".encode())
    os.close(master)
    return Talk(process.wait(30), " ".join(shown.split()), asked)


def test_a_dear_run_is_asked_about_and_sends_nothing_without_a_yes(workplace: Workplace) -> None:
    talk = on_a_terminal(workplace, "run", "job.yaml")
    assert (talk.code, talk.asked) == (2, 1)
    assert "cost: about 100.00 USD for about 10 rows (at least 2.00 USD, at most 200.00 USD" in talk.shown
    assert "nothing was sent" in talk.shown
    assert workplace.request_total() == 0


def test_a_run_that_was_agreed_to_is_not_asked_about_again(workplace: Workplace) -> None:
    assert on_a_terminal(workplace, "run", "job.yaml", answer="n").code == 2
    first = on_a_terminal(workplace, "run", "job.yaml", answer="y")
    assert (first.code, first.asked) == (0, 1)
    assert workplace.request_total() == 10
    again = on_a_terminal(workplace, "run", "job.yaml")
    assert (again.code, again.asked) == (0, 0)


@pytest.mark.parametrize("more", [["-y"], ["--confirm-usd", "100"]])
def test_a_yes_beforehand_and_a_cheaper_run_ask_nothing(workplace: Workplace, more: list[str]) -> None:
    talk = on_a_terminal(workplace, "run", "job.yaml", *more)
    assert (talk.code, talk.asked) == (0, 0)
    assert "cost: about 100.00 USD" in talk.shown


def test_quiet_asks_all_the_same(workplace: Workplace) -> None:
    talk = on_a_terminal(workplace, "run", "job.yaml", "--quiet")
    assert (talk.code, talk.asked) == (2, 1)


def test_a_script_is_told_and_never_asked(workplace: Workplace) -> None:
    ended = workplace.rowmill("run", "job.yaml")
    assert ended.code == 0
    assert ended.err.count("cost: about 100.00 USD for about 10 rows") == 1
    again = workplace.rowmill("run", "job.yaml")
    assert "cost: about" not in again.err


def test_a_quiet_script_is_told_nothing(workplace: Workplace) -> None:
    assert workplace.rowmill("run", "job.yaml", "--quiet").err == ""


def test_a_stream_costs_so_much_for_each_thousand_rows_and_is_not_asked_about(workplace: Workplace) -> None:
    write_job(workplace, 1, source="-")
    rows = "".join(json.dumps({"text": f"[[row-{n}]]"}) + "\n" for n in range(3))
    ended = workplace.rowmill("run", "job.yaml", stdin=rows)
    assert ended.code == 0, ended.err
    assert "cost: about 10,000.00 USD for each 1,000 rows (at least 200.00 USD" in ended.err


def test_an_answer_without_a_limit_has_no_most(workplace: Workplace) -> None:
    write_job(workplace, 10, params={})
    assert "at most unknown, as nothing limits the answers" in workplace.rowmill("run", "job.yaml").err


def test_without_a_price_nothing_is_said(workplace: Workplace) -> None:
    assert "cost: about" not in workplace.run().err


def test_a_limit_bounds_what_all_rows_cost(workplace: Workplace) -> None:
    assert "for about 2 rows" in workplace.rowmill("run", "job.yaml", "--limit", "2").err


def test_a_threshold_out_of_range_is_refused(workplace: Workplace) -> None:
    ended = workplace.rowmill("run", "job.yaml", "--confirm-usd", "-1")
    assert ended.code == 2
    assert workplace.request_total() == 0
