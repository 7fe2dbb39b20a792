"""`rowmill tune` against the simulator: what it sends, keeps, recommends and writes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.workplace import Workplace, own_tokens, until

from rowmill.simulator import Behaviour, Simulator

if TYPE_CHECKING:
    from tests.command_line import Ended

pytestmark = pytest.mark.slow

JOB = """\
source: in.csv
prompt: "Say it: {{ text }}"
endpoints:
  - model: sim   # ours
    url: URL
output: out.jsonl
"""


def tune(workplace: Workplace, *more: str, source: str = "in.csv") -> Ended:
    return workplace.rowmill("tune", *workplace.arguments(source, *more)[1:])


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose simulator answers eight requests at a time."""
    with Simulator(Behaviour(slots=8, latency="0.03")) as simulator:
        yield Workplace(tmp_path, simulator)


@pytest.mark.alone
def test_the_slots_are_found_and_the_rows_that_were_measured_are_not_sent_again(slots: Workplace) -> None:
    slots.write_rows(1_000)
    ended = tune(slots, "--most", "50", "--json")
    assert ended.code == 0, ended.err
    report = ended.json()
    assert 6 <= report["recommended"]["in_flight"] <= 20
    assert [step["in_flight"] for step in report["steps"]][:3] == [1, 5, 10]
    assert all(step["rows"] >= 30 and step["failed_share"] == 0 for step in report["steps"])
    sent = slots.request_total()
    assert sent < 1_000
    assert max(slots.requests().values()) == 1
    assert not (slots.folder / "out.jsonl").exists()

    ended = slots.run("--in-flight", "8")
    assert ended.code == 0
    assert f"other rows of the input are chosen: {sent} finished rows were found again among them" in ended.err
    assert slots.request_total() == 1_000
    assert max(slots.requests().values()) == 1
    assert own_tokens(slots.output())
    assert len(slots.output()) == 1_000


def test_the_table_and_the_plot_stand_on_standard_output(slots: Workplace) -> None:
    slots.write_rows(200)
    ended = tune(slots, "--most", "5", "--step-rows", "10")
    assert ended.code == 0, ended.err
    assert "in flight  rows  rows/s  tokens/s" in ended.out
    assert "rows/s by requests in flight" in ended.out
    assert "recommended" in ended.out
    assert "answers are in out.jsonl.rowmill" in ended.err


def test_what_is_recommended_is_written_into_the_job_file(slots: Workplace) -> None:
    slots.write_rows(200)
    before = JOB.replace("URL", slots.simulator.url)
    job = slots.write("job.yaml", before)
    ended = slots.rowmill("tune", "job.yaml", "--most", "5", "--step-rows", "10", "--write", "--json")
    assert ended.code == 0, ended.err
    advice = ended.json()["recommended"]
    lines = job.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line in before.splitlines()] == before.splitlines()
    assert f"    in_flight: {advice['in_flight']}" in lines
    assert f"timeout_s: {advice['timeout_s']}" in lines
    assert slots.rowmill("run", "job.yaml").code == 0
    assert slots.request_total() == 200


def test_a_run_that_was_stopped_keeps_its_rows_through_a_tune(workplace: Workplace) -> None:
    workplace.write_rows(300)
    workplace.simulator.change(latency="0.05")
    process = workplace.start("--in-flight", "8")
    until(lambda: workplace.request_total() > 60, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    workplace.simulator.change(latency="0")
    before = workplace.request_total()
    ended = tune(workplace, "--most", "5", "--step-rows", "10")
    assert ended.code == 0, ended.err
    assert workplace.request_total() > before
    status = workplace.rowmill("status", "out.jsonl", "--json").json()
    assert status["counts"]["ok"] == workplace.request_total()
    assert workplace.run().code == 0
    assert workplace.request_total() == 300
    assert own_tokens(workplace.output())


def test_a_second_tune_measures_with_rows_that_are_still_fresh(workplace: Workplace) -> None:
    workplace.write_rows(200)
    assert tune(workplace, "--most", "5", "--step-rows", "10").code == 0
    first = workplace.request_total()
    assert tune(workplace, "--most", "5", "--step-rows", "10").code == 0
    assert workplace.request_total() > first
    assert max(workplace.requests().values()) == 1


@pytest.mark.alone
def test_throttling_ends_it_and_less_is_recommended(tmp_path: Path) -> None:
    with Simulator(Behaviour(rpm=600, window_s=6.0, dialect="none", latency="0.05")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(400)
        ended = tune(workplace, "--step-rows", "30", "--step-s", "2", "--json")
        assert ended.code == 0, ended.err
        report = ended.json()
        assert report["steps"][-1]["throttled_share"] > 0
        assert report["ended"].startswith("throttled at ")
        assert report["recommended"]["in_flight"] < report["steps"][-1]["in_flight"]


def test_an_interrupt_keeps_what_was_measured(workplace: Workplace) -> None:
    workplace.write_rows(400)
    workplace.simulator.change(latency="0.1")
    process = subprocess.Popen(
        [sys.executable, "-m", "rowmill", "tune", *workplace.arguments()[1:], "--step-rows", "10", "--json"],
        cwd=workplace.folder,
        env=workplace.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: workplace.request_total() > 30, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert '"in_flight": 1,' in out
    sent = workplace.request_total()
    status = workplace.rowmill("status", "out.jsonl", "--json").json()
    assert status["counts"]["ok"] == sent
    assert workplace.run().code == 0
    assert workplace.request_total() == 400


def test_a_server_that_is_not_there_is_no_measurement(workplace: Workplace) -> None:
    workplace.write_rows(50)
    workplace.simulator.stop()
    ended = tune(workplace, "--step-s", "0.5", "--json")
    assert ended.code == 4
    assert ended.json()["recommended"] is None
    assert ended.json()["ended"] == "nothing was answered at 1 in flight"
    assert "Nothing can be recommended" in ended.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--in-flight", "5"], "--most says how far"),
        (["--write"], "no job file to write into"),
        (["--most", "0"], "must be above 0"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(workplace: Workplace, more: list[str], words: str) -> None:
    workplace.write_rows(5)
    ended = tune(workplace, *more)
    assert ended.code == 2
    assert words in ended.err
    assert workplace.request_total() == 0


def test_standard_input_is_refused(workplace: Workplace) -> None:
    assert "write it to a file first" in tune(workplace, source="-").err


def test_an_input_without_fresh_rows_is_refused(workplace: Workplace) -> None:
    workplace.write_rows(30)
    assert workplace.run("--limit", "28").code == 0
    ended = tune(workplace)
    assert ended.code == 2
    assert "at least 6 rows that are not finished; there are 2" in ended.err
    assert workplace.request_total() == 28


@pytest.mark.alone
def test_auto_uses_the_slots_of_a_queueing_server(tmp_path: Path) -> None:
    with Simulator(Behaviour(slots=16, latency="0.05")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(1_500)
        ended = workplace.run("--json")
        assert ended.code == 0, ended.err
        assert workplace.request_total() == 1_500
        counters = simulator.counters()
        assert counters["peak_serving"] == 16
        assert counters["peak_in_flight"] <= 64
        [lane] = ended.json()["lanes"]
        assert lane["adapts"]
        assert 10 <= lane["limit"] <= 48


PRICED_JOB = """\
source: in.csv
prompt: "Say it: {{ text }}"
endpoints:
  - model: sim
    url: URL
    price: {input: 0, output: 100}
params: {max_tokens: 100}
budget_usd: 1
output: out.jsonl
"""


def test_a_tune_keeps_to_the_budget_and_what_it_spends_is_the_runs_money(tmp_path: Path) -> None:
    """100 tokens of output cost a cent, which is also the worst case: a hundred requests."""
    with Simulator(Behaviour(output_tokens=100, latency="0.01")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(1_000)
        workplace.write("job.yaml", PRICED_JOB.replace("URL", simulator.url))
        ended = workplace.rowmill("tune", "job.yaml", "--most", "50")
        sent = workplace.request_total()
        status = workplace.rowmill("status", "out.jsonl", "--json").json()
        again = workplace.rowmill("run", "job.yaml", "--json")
        assert workplace.request_total() == sent == 100
    assert ended.code == 4
    assert "raise --budget-usd" in ended.err
    assert status["cost_usd"] == pytest.approx(1.0)
    assert again.code == 4
    assert again.json()["cost_usd"] == pytest.approx(1.0)


def test_a_tune_without_a_known_price_is_refused_under_a_budget(workplace: Workplace) -> None:
    workplace.write_rows(100)
    ended = tune(workplace, "--budget-usd", "1", "--max-tokens", "10")
    assert ended.code == 2
    assert "the price of sim is unknown" in ended.err
    assert workplace.request_total() == 0
