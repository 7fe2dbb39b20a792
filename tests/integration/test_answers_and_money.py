"""Repair, fallback, prices and accuracy, end to end (CASES H9, H10, I)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.workplace import Workplace, kill, until

from rowmill.simulator import Behaviour, Simulator
from rowmill.simulator.script import Fault, Step

if TYPE_CHECKING:
    from tests.command_line import Ended

SCHEMA = {"mood": "good|bad"}
GOOD = 'ok text="{\\"mood\\": \\"good\\"}"'
BAD = 'ok text="{\\"mood\\": \\"middling\\"}"'
PRICE = {"input": 1.0, "output": 2.0, "unit": "1K"}


def write_job(workplace: Workplace, rows: int = 1, price: Mapping[str, Any] | None = PRICE, **keys: Any) -> None:
    """A job over rows `[[row-N]]` whose text is 8 bytes of prompt."""
    workplace.write("in.csv", "id,text,label\n" + "".join(f"{n},[[row-{n}]],good\n" for n in range(rows)))
    endpoint: dict[str, Any] = {"model": "sim", "url": workplace.simulator.url, "in_flight": 4}
    if price is not None:
        endpoint["price"] = price
    job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl", **keys}
    workplace.write("job.yaml", json.dumps(job))


def go(workplace: Workplace, *more: str) -> Ended:
    return workplace.rowmill("run", "job.yaml", "--json", *more)


def test_an_invalid_answer_is_repaired_and_all_attempts_are_paid_for(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}, {BAD}, {BAD}, {GOOD}"}, output_tokens=5)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "repair": 3})
        ended = go(workplace)
        [row] = workplace.output()
        shown = workplace.rowmill("rows", "out.jsonl", "--json").json()
    assert (row["mood"], row["_status"], row["_attempts"], row["_output_tokens"]) == ("good", "ok", 4, 20)
    costs = [attempt["cost_usd"] for attempt in shown["attempts"]]
    assert len(costs) == 4
    assert row["_cost_usd"] == pytest.approx(sum(costs))
    assert row["_cost_usd"] == pytest.approx(row["_input_tokens"] * 1e-3 + 20 * 2e-3)
    assert ended.json()["cost_usd"] == pytest.approx(row["_cost_usd"])


@pytest.mark.parametrize(
    ("step", "status", "requests"),
    [
        (Step(Fault.LENGTH, text='{"mood": "good", "why": "'), "truncated", 1),
        (Step(Fault.LENGTH_NULL), "truncated", 1),
        (Step(Fault.THINK, text='{"mood": "good"}'), "ok", 1),
        (Step(text='x</think>{"mood": "good"}'), "ok", 1),
        (Step(Fault.FENCED, text='{"mood": "good"}'), "ok", 1),
        (Step(text='```\n{"mood": "good"}\n```'), "ok", 1),
        (Step(text='{"mood": "Good"}'), "ok", 2),
        (Step(text='{"mood": "good", "more": 1}'), "ok", 2),
        (Step(text="{}"), "ok", 2),
        (Step(text='{"mood": NaN}'), "ok", 2),
        (Step(Fault.BAD_JSON), "ok", 2),
        (Step(Fault.REFUSED), "refused", 1),
        (Step(Fault.FILTERED), "filtered", 1),
    ],
)
def test_only_answers_that_do_not_fit_are_repaired(tmp_path: Path, step: Step, status: str, requests: int) -> None:
    with Simulator(Behaviour(scripts={"row-0": step})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "repair": 1})
        ended = go(workplace)
        [row] = workplace.output()
        assert (row["_status"], workplace.request_total()) == (status, requests), ended.err
    if requests == 1 and status == "ok":
        assert row["mood"] == "good"


def test_a_braced_text_inside_an_answer_is_read_as_it_is(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": Step(text='{"mood": "```good```"}')})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": {"mood": "string"}})
        go(workplace)
        assert workplace.output()[0]["mood"] == "```good```"


def test_the_prompt_of_a_repair_does_not_grow_by_each_failure(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}, {BAD}, {BAD}, {GOOD}"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "repair": 3})
        go(workplace)
        shown = workplace.rowmill("rows", "out.jsonl", "--json").json()
    first, *repairs = [attempt["input_tokens"] for attempt in shown["attempts"]]
    assert first < repairs[0]
    assert len(set(repairs)) == 1


def test_a_row_that_no_repair_mends_is_invalid_with_the_path_of_the_fault(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "repair": 1})
        ended = go(workplace)
        [row] = workplace.output()
    assert ended.code == 3
    assert (row["_status"], row["_attempts"], row["mood"]) == ("invalid", 2, None)
    assert row["_error"].startswith("$.mood: ")
    assert row["_error"].endswith("(after a repair)")


def test_without_repair_an_invalid_answer_costs_one_request(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA})
        assert go(workplace).json()["requests"] == 1


def test_a_fallback_stands_in_for_invalid_rows_and_never_for_failed_ones(tmp_path: Path) -> None:
    scripts = {"row-0": f"{BAD}...", "row-1": "400", "row-2": "length", "row-3": GOOD}
    with Simulator(Behaviour(scripts=scripts)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 4, answer={"schema": SCHEMA, "fallback": {"mood": "bad"}})
        ended = go(workplace)
        rows = workplace.output()
    assert ended.code == 3
    assert [row["_status"] for row in rows] == ["fallback", "failed", "truncated", "ok"]
    assert rows[0]["mood"] == "bad"
    assert rows[0]["_error"].startswith("invalid: $.mood")


def test_a_fallback_added_later_costs_no_request(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}...", "row-1": GOOD, "row-2": "length"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 3, answer={"schema": SCHEMA, "repair": 1})
        assert go(workplace).code == 3
        before, first = workplace.request_total(), workplace.output()
        stands_for = ["invalid", "truncated"]
        answer = {"schema": SCHEMA, "repair": 1, "fallback": {"mood": "bad"}, "fallback_for": stands_for}
        write_job(workplace, 3, answer=answer)
        ended = go(workplace)
        rows = workplace.output()
        assert workplace.request_total() == before
    assert ended.code == 0
    assert [row["_status"] for row in rows] == ["fallback", "ok", "fallback"]
    for name in ("_attempts", "_input_tokens", "_output_tokens", "_cost_usd"):
        assert [row[name] for row in rows] == [row[name] for row in first]


def test_a_fallback_taken_away_leaves_invalid_rows_without_a_request(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "fallback": {"mood": "bad"}})
        assert go(workplace).code == 0
        write_job(workplace, answer={"schema": SCHEMA})
        assert go(workplace).code == 3
        assert workplace.output()[0]["_status"] == "invalid"
        assert workplace.request_total() == 1


def test_unknown_prices_and_missing_usage_are_unknown_and_never_zero(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": "no-usage"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 2)
        ended = go(workplace)
        rows = workplace.output()
    assert rows[0]["_cost_usd"] is None
    assert rows[0]["_input_tokens"] is None
    assert rows[1]["_cost_usd"] > 0
    assert ended.json()["cost_usd"] is None
    assert "cost unknown (at least" in ended.err


def test_without_a_price_the_cost_is_unknown(tmp_path: Path) -> None:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 2, None)
        ended = go(workplace)
        assert [row["_cost_usd"] for row in workplace.output()] == [None, None]
    assert ended.json()["cost_usd"] is None
    assert "cost unknown" in ended.err


def test_a_refused_request_costs_nothing_and_a_price_of_zero_is_known(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": "503, ok", "row-1": "no-usage"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 2, {"input": 0, "output": 0}, retry={"backoff_s": 0.01})
        assert go(workplace).json()["cost_usd"] == 0
        assert [row["_cost_usd"] for row in workplace.output()] == [0, 0]


def test_cached_tokens_are_paid_at_their_own_price(tmp_path: Path) -> None:
    price = {"input": 10.0, "cached_input": 1.0, "output": 0, "unit": "token"}
    with Simulator(Behaviour(cached_share=1.0)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 1, price)
        go(workplace)
        [row] = workplace.output()
    assert row["_cost_usd"] == pytest.approx(row["_input_tokens"] * 1.0)


def test_an_implausible_price_is_flagged(tmp_path: Path) -> None:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 1, {"input": 2.5, "output": 10, "unit": "token"})
        ended = go(workplace)
    assert ended.code == 0
    assert "is 2,500,000 USD for a million tokens" in ended.err


def test_what_was_spent_on_rows_that_a_retry_mends_stays_in_the_total(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}, {GOOD}"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA})
        first = go(workplace).json()["cost_usd"]
        second = workplace.rowmill("retry", "out.jsonl", "--status", "invalid", "--json").json()["cost_usd"]
    assert second == pytest.approx(2 * first)


# --- the budget ---------------------------------------------------------------------------------------------


def test_a_budget_stops_the_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    """100 tokens of output: 0.08 USD a request at the worst, and that is what each costs."""
    price = {"input": 0, "output": 800}
    with Simulator(Behaviour(output_tokens=100, latency="0-0.02")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 40, price, params={"max_tokens": 100}, budget_usd=1)
        stopped = go(workplace)
        first = workplace.request_total()
        more = workplace.rowmill("run", "job.yaml", "--json", "--budget-usd", "2")
        second = workplace.request_total()
        done = workplace.rowmill("run", "job.yaml", "--json", "--budget-usd", "10")
    assert (stopped.code, first) == (4, 12)
    assert "raise --budget-usd" in stopped.err
    assert stopped.json()["cost_usd"] == pytest.approx(0.96)
    assert not stopped.json()["output"]
    assert (more.code, second) == (4, 25)
    assert done.code == 0
    assert done.json()["cost_usd"] == pytest.approx(3.2)


def test_a_budget_without_a_price_or_a_limit_of_tokens_is_refused_with_what_to_state(tmp_path: Path) -> None:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 2, None)
        ended = workplace.rowmill("run", "job.yaml", "--budget-usd", "1")
        assert workplace.request_total() == 0
    assert ended.code == 2
    assert "the price of sim is unknown" in ended.err
    assert "price: {input: 0.15, output: 0.6}" in ended.err
    assert "give --max-tokens" in ended.err


def test_an_implausible_price_is_refused_with_a_budget(tmp_path: Path) -> None:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 2, {"input": 2.5, "output": 10, "unit": "token"}, params={"max_tokens": 100})
        ended = workplace.rowmill("run", "job.yaml", "--budget-usd", "1")
        assert workplace.request_total() == 0
    assert ended.code == 2
    assert "budget_usd: sim: price.input of 2.5" in ended.err


def test_requests_of_unknown_cost_stay_charged_at_their_worst_in_later_sessions(tmp_path: Path) -> None:
    price = {"input": 0, "output": 800}
    with Simulator(Behaviour(output_tokens=100, scripts={"*": "no-usage..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 20, price, params={"max_tokens": 100}, budget_usd=0.4)
        first = go(workplace)
        sent = workplace.request_total()
        again = go(workplace)
        assert workplace.request_total() == sent == 5
    assert (first.code, again.code) == (4, 4)
    assert "0.4 of it unconfirmed" in again.err


@pytest.mark.slow
def test_a_row_killed_before_its_repair_goes_on_with_the_repair(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}, hang, {GOOD}"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, answer={"schema": SCHEMA, "repair": 1})
        process = subprocess.Popen(
            [sys.executable, "-m", "rowmill", "run", "job.yaml"],
            cwd=workplace.folder,
            env=workplace.environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: workplace.request_total() == 2 and _attempts_stored(workplace) == 1, process)
        kill(process)
        assert go(workplace).code == 0
        assert workplace.request_total() == 3
        [row] = workplace.output()
        shown = workplace.rowmill("rows", "out.jsonl", "--json").json()
    first, second = [attempt["input_tokens"] for attempt in shown["attempts"]]
    assert second > first
    assert (row["mood"], row["_attempts"], row["_input_tokens"]) == ("good", 2, first + second)
    assert row["_cost_usd"] == pytest.approx(sum(attempt["cost_usd"] for attempt in shown["attempts"]))


def _attempts_stored(workplace: Workplace) -> int:
    connection = sqlite3.connect(workplace.folder / "out.jsonl.rowmill")
    try:
        return int(connection.execute("SELECT count(*) FROM attempts").fetchone()[0])
    finally:
        connection.close()


@pytest.mark.slow
def test_after_a_kill_only_what_was_sent_counts_as_spent(tmp_path: Path) -> None:
    """64 in flight, of which a quota lets one a second go: each costs 0.0808 USD at most."""
    price = {"input": 0, "output": 800}
    with Simulator(Behaviour(output_tokens=100, latency="0.05", scripts={"row-2": "hang"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, 100, price, params={"max_tokens": 100}, budget_usd=100)
        job = (tmp_path / "job.yaml").read_text().replace('"in_flight": 4', '"in_flight": 64, "rpm": 60')
        workplace.write("job.yaml", job)
        process = workplace.begin("run", "job.yaml")
        until(lambda: workplace.request_total() == 3, process)
        kill(process)
        ended = workplace.rowmill("run", "job.yaml", "--json", "--budget-usd", "0.25")
        assert workplace.request_total() == 3
    assert ended.code == 4
    assert "0.24 USD are spent (0.08 of it unconfirmed" in ended.err
    assert not list(tmp_path.glob("*-spent"))
