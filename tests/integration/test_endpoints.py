"""Several endpoints in one job, with the real command line and a simulator for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.workplace import Workplace, kill, own_tokens, until

from rowmill.simulator import Behaviour, Simulator

if TYPE_CHECKING:
    from tests.command_line import Ended


class Several(Workplace):
    """A workplace with one simulator for each behaviour; `job` writes a job over them and `go` runs it."""

    def __init__(self, folder: Path, simulators: Sequence[Simulator]) -> None:
        super().__init__(folder, simulators[0])
        self.simulators = simulators

    def job(self, *endpoints: dict[str, Any], **keys: Any) -> None:
        named = [
            {"model": "abc"[workplace], "url": simulator.url, **endpoint}
            for workplace, (simulator, endpoint) in enumerate(zip(self.simulators, endpoints, strict=True))
        ]
        made = {"source": "in.csv", "prompt": "Say it: {{ text }}", "output": "out.jsonl", "endpoints": named, **keys}
        self.write("job.yaml", json.dumps(made))

    def go(self, *more: str) -> Ended:
        return self.rowmill("run", "job.yaml", *more)

    @property
    def by(self) -> Counter[str]:
        return Counter(row["_endpoint"] for row in self.output())

    def totals(self) -> list[int]:
        """Requests that each simulator saw."""
        return [sum(simulator.counters()["tokens"].values()) for simulator in self.simulators]


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Any]:
    """Makes a workplace with one simulator a behaviour."""
    with ExitStack() as stack:
        yield lambda *behaviours: Several(tmp_path, [stack.enter_context(Simulator(one)) for one in behaviours])


def test_twenty_rows_to_one_and_ten_to_the_other_come_back_in_order_each_with_its_endpoint(several: Any) -> None:
    workplace = several(Behaviour(latency="0.05"), Behaviour())
    workplace.write_rows(30)
    workplace.job({"take": 20}, {"take": 10})
    done = workplace.go("--json")
    assert done.code == 0
    rows = workplace.output()
    assert [row["_row"] for row in rows] == list(range(30))
    assert own_tokens(rows)
    assert [row["_endpoint"] for row in rows] == ["a"] * 20 + ["b"] * 10
    assert {lane["name"]: lane["requests"] for lane in done.json()["lanes"]} == {"a": 20, "b": 10}


@pytest.mark.slow
def test_a_provider_killed_in_mid_run_hands_its_rows_to_the_other(several: Any) -> None:
    workplace = several(Behaviour(latency="0.2"), Behaviour(latency="0.02"))
    workplace.write_rows(60)
    workplace.job({"take": 50, "in_flight": 5}, {"take": 10})
    process = workplace.begin("run", "job.yaml")
    until(lambda: workplace.totals()[0] >= 15, process)
    workplace.simulators[0].stop()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    rows = workplace.output()
    assert own_tokens(rows)
    assert len(rows) == 60
    assert workplace.by["a"] >= 5
    assert workplace.by["b"] >= 40


def test_rows_go_by_an_expression_and_the_rest_to_whoever_is_free(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(40)
    workplace.job({"when": "id | int < 4"}, {})
    assert workplace.go().code == 0
    assert [row["_endpoint"] for row in workplace.output()] == ["a"] * 4 + ["b"] * 36


def test_a_column_that_only_an_expression_uses_does_not_make_another_row(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write("in.csv", "text,lang\n" + "".join(f"[[row-{n}]],en\n" for n in range(10)))
    workplace.job({"when": "lang == 'en'"}, {})
    assert workplace.go().code == 0
    workplace.write("in.csv", "text,lang\n" + "".join(f"[[row-{n}]],de\n" for n in range(10)))
    assert workplace.go().code == 0
    assert workplace.totals() == [10, 0]


def test_a_row_that_nobody_takes_fails_and_says_why(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(5)
    workplace.job({"take": 2}, {"when": "id == '3'"})
    assert workplace.go().code == 3
    rows = workplace.output()
    assert [row["_status"] for row in rows] == ["ok", "ok", "failed", "ok", "failed"]
    assert "no endpoint takes this row" in rows[2]["_error"]


def test_the_first_rows_are_counted_among_those_that_are_chosen(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(40)
    workplace.job({"take": 5}, {}, where="id | int >= 20")
    assert workplace.go().code == 0
    assert [row["_endpoint"] for row in workplace.output()][:6] == ["a"] * 5 + ["b"]


def test_an_endpoint_whose_quota_is_gone_is_parked_and_the_other_finishes(several: Any) -> None:
    gone = "429 code=insufficient_quota ..."
    workplace = several(Behaviour(scripts={"*": gone}), Behaviour())
    workplace.write_rows(100)
    workplace.job({"take": 90}, {})
    done = workplace.go()
    assert done.code == 0, done.err
    assert workplace.by == {"b": 100}


def test_with_every_endpoint_parked_the_run_stops_resumable(several: Any) -> None:
    gone = "429 code=insufficient_quota ..."
    workplace = several(Behaviour(scripts={"*": gone}), Behaviour(scripts={"*": gone}))
    workplace.write_rows(50)
    workplace.job({}, {})
    done = workplace.go()
    assert done.code == 4
    assert "quota" in done.err
    assert not (workplace.folder / "out.jsonl").exists()


def test_rows_of_a_pinned_endpoint_stay_pending_when_it_is_out(several: Any) -> None:
    gone = "429 code=insufficient_quota ..."
    workplace = several(Behaviour(scripts={"*": gone}), Behaviour())
    workplace.write_rows(50)
    workplace.job({"take": 10, "pin": True}, {})
    assert workplace.go().code == 4
    assert workplace.totals()[1] == 40
    workplace.job({"take": 10}, {})
    assert workplace.go().code == 0
    assert workplace.totals()[1] == 50


def test_an_endpoint_that_always_fails_takes_no_row_with_it(several: Any) -> None:
    workplace = several(Behaviour(scripts={"*": "500 ..."}), Behaviour(latency="0.01"))
    workplace.write_rows(300)
    workplace.job({}, {"in_flight": 4}, retry={"backoff_s": 0.01})
    assert workplace.go().code == 0
    assert workplace.by == {"b": 300}
    assert own_tokens(workplace.output())


def test_rows_that_end_invalid_go_on_to_the_next_endpoint(several: Any) -> None:
    scripts = {f"row-{n}": "bad-json" for n in range(0, 40, 10)}
    workplace = several(Behaviour(scripts=scripts), Behaviour())
    workplace.write_rows(40)
    workplace.job({"cascade": ["invalid"]}, {"when": "false"}, answer={"schema": {"label": "string"}})
    assert workplace.go().code == 0
    assert workplace.by == {"a": 36, "b": 4}
    assert workplace.totals() == [40, 4]


@pytest.mark.slow
def test_a_kill_in_mid_cascade_asks_nobody_twice_but_what_was_in_flight(several: Any) -> None:
    workplace = several(Behaviour(scripts={"*": "bad-json ..."}), Behaviour(latency="0.1"))
    workplace.write_rows(200)
    workplace.job({"cascade": ["invalid"]}, {"when": "false", "in_flight": 5}, answer={"schema": {"label": "string"}})
    process = workplace.begin("run", "job.yaml")
    until(lambda: workplace.totals()[1] >= 60, process)
    kill(process)
    before = workplace.totals()[0]
    assert workplace.go().code == 0
    assert workplace.by == {"b": 200}
    first, second = workplace.totals()
    assert before <= first <= 200 + 20
    assert second <= 200 + 5 + 20


def test_servers_of_one_model_are_told_apart_and_one_more_is_no_change(several: Any) -> None:
    workplace = several(Behaviour(latency="0.01"), Behaviour(latency="0.01"))
    workplace.write_rows(60)
    urls = [simulator.url for simulator in workplace.simulators]
    assert workplace.rowmill("run", "in.csv", "-p", "Say it: {{ text }}", "-m", "m", "--url", urls[0]).code == 0
    workplace.write_rows(200)
    workplace.job({"model": "m"}, {"model": "m"}, output="in.out.jsonl")
    done = workplace.go()
    assert done.code == 0, done.err
    assert sum(workplace.totals()) == 200
    names = Counter(row["_endpoint"] for row in workplace.output("in.out.jsonl"))
    hosts = [url.removeprefix("http://").removesuffix("/v1") for url in urls]
    assert names["m"] == 60
    assert names[f"m@{hosts[0]}"] + names[f"m@{hosts[1]}"] == 140
    assert min(names[f"m@{host}"] for host in hosts) > 0


def test_prompt_and_parameters_may_be_the_endpoints_own_and_the_rows(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write("in.csv", "text,n,m\n[[row-0]],64,small\n")
    workplace.job(
        {"prompt": [{"user": "Mine: {{ text }}"}], "model": "{{ m }}", "params": {"max_tokens": "{{ n }}", "top_k": 1}},
        {"when": "false"},
        params={"temperature": 0},
        system="Be brief.",
    )
    shown = workplace.rowmill("check", "job.yaml")
    assert shown.code == 0, shown.err
    request = json.loads(shown.out[shown.out.index("{\n") : shown.out.rindex("}") + 1])
    assert request == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Mine: [[row-0]]"}],
        "temperature": 0,
        "max_tokens": 64,
        "top_k": 1,
    }
    assert workplace.go().code == 0


def test_a_function_of_ones_own_reads_the_replies_of_an_endpoint(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(6)
    workplace.write(
        "own.py", "import json\n\n\ndef label(text):\n    return {'label': json.loads(text)['label'] + '!'}\n"
    )
    workplace.job({"parse": "own:label", "take": 3}, {"parse": "own:label"}, answer={"schema": {"label": "string"}})
    done = workplace.go()
    assert done.code == 0, done.err
    assert [row["label"] for row in workplace.output()] == [f"row-{n}!" for n in range(6)]


def test_a_function_that_raises_makes_the_row_invalid_and_keeps_the_reply(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(2)
    workplace.write("own.py", "def label(text):\n    raise KeyError('nothing')\n")
    workplace.job({"parse": "own:label", "take": 1}, {})
    assert workplace.go().code == 3
    first, second = workplace.output()
    assert first["_status"] == "invalid"
    assert "parse raised KeyError" in first["_error"]
    assert second["_status"] == "ok"
    assert "row-0" in workplace.rowmill("rows", "out.jsonl", "--status", "invalid", "--json").out


def test_other_limits_under_one_named_quota_are_refused(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(2)
    workplace.job({"quota": "q", "rpm": 5}, {"quota": "q", "rpm": 6})
    refused = workplace.go()
    assert refused.code == 2
    assert "states other limits than the endpoints that share quota `q`" in refused.err


def test_options_of_several_models_hold_for_each(several: Any) -> None:
    workplace = several(Behaviour())
    workplace.write_rows(40)
    url = workplace.simulators[0].url
    asked = ("--in-flight", "3", "-m", "sim", "--url", url, "-m", "sim2", "--url", url, "--in-flight", "2")
    done = workplace.rowmill("run", "in.csv", "-p", "{{ text }}", *asked, "-o", "out.jsonl", "--json")
    assert done.code == 0, done.err
    assert {lane["name"]: lane["limit"] for lane in done.json()["lanes"]} == {"sim": 3, "sim2": 2}


def test_a_changed_prompt_of_one_endpoint_is_about_its_own_rows(several: Any) -> None:
    workplace = several(Behaviour(), Behaviour())
    workplace.write_rows(20)
    workplace.job({"take": 8}, {})
    assert workplace.go().code == 0
    workplace.job({"take": 8, "prompt": "Anew: {{ text }}"}, {})
    changed = workplace.go()
    assert changed.code == 2
    assert "prompt changed; 8 finished rows were answered under the old one" in changed.err
    assert workplace.go("--on-change", "rerun").code == 0
    assert workplace.totals() == [16, 12]
