"""`rowmill quote` and `run --pilot`: a sample that is answered once, and what it says of all rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.workplace import Workplace, own_tokens

from rowmill.simulator import Behaviour, Simulator

PRICE = {"input": 100, "output": 100}


def write_job(workplace: Workplace, rows: int, **keys: Any) -> None:
    """Rows whose lengths differ by a factor of fifty."""
    lines = [f"{n},[[row-{n}]] {'word ' * (n * 7 % 50)}" for n in range(rows)]
    workplace.write("in.csv", "\n".join(["id,text", *lines]) + "\n")
    endpoint = {"model": "sim", "url": workplace.simulator.url, "price": PRICE}
    job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl", **keys}
    workplace.write("job.yaml", json.dumps(job))


def test_a_quote_holds_the_true_cost_and_the_run_sends_only_the_rest(workplace: Workplace) -> None:
    write_job(workplace, 2500, pilot=100)
    ended = workplace.rowmill("quote", "job.yaml", "--json")
    assert ended.code == 0, ended.err
    assert workplace.request_total() == 100
    assert not (workplace.folder / "out.jsonl").exists()
    quoted = ended.json()
    run = workplace.rowmill("run", "job.yaml", "--json", "--yes")
    assert run.code == 0, run.err
    assert workplace.request_total() == 2500
    assert max(workplace.requests().values()) == 1
    assert own_tokens(workplace.output())
    assert [row["_row"] for row in workplace.output()] == list(range(2500))
    assert (quoted["rows"], quoted["sampled_rows"]) == (2500, 100)
    assert quoted["cost_usd"]["low"] <= run.json()["cost_usd"] <= quoted["cost_usd"]["high"]
    assert quoted["success_rate"]["value"] == 1
    assert "the pilot's 100 finished rows are taken over" in run.err


def test_the_sample_is_drawn_from_the_whole_input(workplace: Workplace) -> None:
    write_job(workplace, 3000, pilot=60)
    workplace.rowmill("quote", "job.yaml")
    sent = sorted(int(token.removeprefix("row-")) for token in workplace.requests())
    assert sent[0] < 500
    assert sent[-1] > 2500


def test_a_quote_asked_for_twice_pays_once(workplace: Workplace) -> None:
    write_job(workplace, 300, pilot=20)
    first = workplace.rowmill("quote", "job.yaml", "--json")
    again = workplace.rowmill("quote", "job.yaml", "--json")
    assert workplace.request_total() == 20
    assert again.json()["cost_usd"] == first.json()["cost_usd"]


def test_a_quote_is_a_table_on_standard_output(workplace: Workplace) -> None:
    write_job(workplace, 300, pilot=20)
    ended = workplace.rowmill("quote", "job.yaml")
    assert ended.out.startswith("quote from 20 of 300 rows")
    for words in ("input tokens", "cost, all", "time, rest", "takes them over"):
        assert words in ended.out


def test_a_pilot_needs_somebody_to_ask_or_a_budget(workplace: Workplace) -> None:
    write_job(workplace, 50)
    ended = workplace.rowmill("run", "job.yaml", "--pilot", "10")
    assert ended.code == 2
    assert "add --yes, or --budget-usd" in ended.err
    assert workplace.request_total() == 0


@pytest.mark.parametrize("leave", [["--yes"], ["--budget-usd", "1", "--max-tokens", "8"]])
def test_a_pilot_with_leave_shows_its_quote_and_goes_on(workplace: Workplace, leave: list[str]) -> None:
    write_job(workplace, 50)
    ended = workplace.rowmill("run", "job.yaml", "--pilot", "10", *leave)
    assert ended.code == 0, ended.err
    assert "quote from 10 of 50 rows" in ended.err
    assert workplace.request_total() == 50
    assert own_tokens(workplace.output())


def test_the_budget_holds_over_pilot_and_run_together(tmp_path: Path) -> None:
    with Simulator(Behaviour(output_tokens=100)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 50)
        job = json.loads((tmp_path / "job.yaml").read_text(encoding="utf-8"))
        job["endpoints"][0]["price"] = {"input": 0, "output": 1000}
        workplace.write("job.yaml", json.dumps(job))
        ended = workplace.rowmill(
            "run", "job.yaml", "--pilot", "6", "--budget-usd", "1", "--max-tokens", "100", "--json"
        )
        assert ended.code == 4
        assert ended.json()["cost_usd"] == pytest.approx(1.0)
        assert workplace.request_total() == 10


def test_a_run_that_has_begun_is_not_quoted(workplace: Workplace) -> None:
    write_job(workplace, 30)
    workplace.rowmill("run", "job.yaml")
    ended = workplace.rowmill("quote", "job.yaml")
    assert ended.code == 2
    assert "the run has begun" in ended.err
    assert workplace.request_total() == 30


def test_a_pilot_of_a_run_that_has_begun_is_passed_over(workplace: Workplace) -> None:
    write_job(workplace, 30)
    workplace.rowmill("run", "job.yaml")
    assert workplace.rowmill("run", "job.yaml", "--pilot", "10", "--yes").code == 0
    assert workplace.request_total() == 30


def test_standard_input_is_not_quoted(workplace: Workplace) -> None:
    arguments = ["-p", "{{ text }}", "-m", "sim", "--url", workplace.simulator.url, "-o", "out.jsonl"]
    ended = workplace.rowmill("quote", "-", *arguments, stdin='{"text": "x"}\n')
    assert ended.code == 2
    assert "standard input can be read only once" in ended.err


def test_a_pilot_after_a_quote_does_not_say_that_the_input_has_changed(workplace: Workplace) -> None:
    workplace.write_rows(24)
    quoted = workplace.rowmill(*["quote" if word == "run" else word for word in workplace.arguments()])
    assert quoted.code == 0, quoted.err
    ended = workplace.run("--pilot", "10", "--yes")
    assert ended.code == 0, ended.err
    assert "changed" not in ended.err
    assert max(workplace.requests().values()) == 1
    assert own_tokens(workplace.output())
