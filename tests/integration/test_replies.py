"""Bad replies and failing servers, end to end (CASES A, B, H, J)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.workplace import Workplace, own_tokens

from rowmill.simulator import Behaviour, Outage, Simulator

if TYPE_CHECKING:
    from tests.command_line import Ended


def trial(folder: Path, behaviour: Behaviour, rows: int, *options: str) -> tuple[Workplace, Ended]:
    with Simulator(behaviour) as simulator:
        workplace = Workplace(folder, simulator)
        workplace.write_rows(rows)
        ended = workplace.run(*options)
        workplace.seen = simulator.counters()  # type: ignore[attr-defined]
        return workplace, ended


@pytest.mark.parametrize(
    ("step", "status", "requests"),
    [
        ("error-200 code=429", "ok", 2),
        ("error-200 code=502", "ok", 2),
        ("no-choices", "ok", 2),
        ("null", "ok", 2),
        ("empty", "ok", 2),
        ("html", "ok", 2),
        ("502 body=<html>bad</html>", "ok", 2),
        ("cut", "ok", 2),
        ("bad-encoding", "ok", 2),
        ("length-null", "truncated", 1),
        ("length", "truncated", 1),
        ("filtered", "filtered", 1),
        ("400 code=content_filter", "filtered", 1),
        ("refused", "refused", 1),
        ("400 code=context_length_exceeded", "failed", 1),
        ("422", "failed", 1),
        ("413", "failed", 1),
        ("529", "ok", 2),
        ("520", "ok", 2),
        ("524", "ok", 2),
        ("408", "ok", 2),
        ("425", "ok", 2),
        ("409", "ok", 2),
        ("500 header:x-should-retry=false", "failed", 1),
        ("400 header:x-should-retry=true", "ok", 2),
        ('429 code=rate_limit_exceeded message="You exceeded your quota"', "ok", 2),
        ("429 code=insufficient_quota retry-after=1", "ok", 2),
        ("think", "ok", 1),
        ("reasoning", "ok", 1),
        ("no-usage", "ok", 1),
    ],
)
def test_one_odd_reply_ends_as_the_table_says(tmp_path: Path, step: str, status: str, requests: int) -> None:
    with Simulator(Behaviour(scripts={"row-1": step})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(4)
        ended = workplace.run("--backoff-s", "0.05", "--in-flight", "2")
        row = workplace.output()[1]
        assert row["_status"] == status, ended.err
        assert workplace.requests()["row-1"] == requests
        assert [r["_status"] for r in workplace.output() if r["id"] != "1"] == ["ok"] * 3
        if status == "ok":
            assert row["answer"] == "row-1"
        if step == "no-usage":
            assert row["_input_tokens"] is None
        if step in ("think", "reasoning"):
            assert row["_reasoning"]


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ("429 code=insufficient_quota...", "quota"),
        ("404 code=model_not_found...", "model"),
        ("401...", "key"),
        ("402...", ""),
        ('400 code=unsupported_parameter message="Unsupported parameter: max_tokens"...', "max_tokens"),
    ],
)
def test_a_hopeless_server_stops_the_run_with_exit_4_and_all_rows_pending(tmp_path: Path, step: str, word: str) -> None:
    behaviour = Behaviour(scripts={"*": step}, retry_after="none")
    with Simulator(behaviour) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(2000)
        ended = workplace.run()
        assert ended.code == 4, ended.err
        assert word in ended.err
        assert workplace.request_total() <= 40
        assert not (tmp_path / "out.jsonl").exists()
        status = workplace.rowmill("status", "out.jsonl", "--json").json()
        assert status["counts"] == {}


def test_each_row_gets_its_own_token_after_random_delays(tmp_path: Path) -> None:
    workplace, ended = trial(tmp_path, Behaviour(latency="0-0.05"), 3000, "--in-flight", "100")
    assert ended.code == 0
    assert own_tokens(workplace.output())


def test_the_server_never_sees_more_than_the_cap_at_once(tmp_path: Path) -> None:
    behaviour = Behaviour(latency="0.01", faults={"500": 0.2, "429": 0.05})
    workplace, ended = trial(tmp_path, behaviour, 60, "--in-flight", "3", "--backoff-s", "0.01", "--attempts", "9")
    assert ended.code == 0, ended.err
    assert workplace.seen["peak_in_flight"] <= 3  # type: ignore[attr-defined]


def test_a_request_that_is_never_answered_is_retried_after_its_deadline(tmp_path: Path) -> None:
    behaviour = Behaviour(scripts={f"row-{n}": "hang, ok" for n in range(0, 30, 10)})
    workplace, ended = trial(tmp_path, behaviour, 30, "--timeout-s", "0.5", "--backoff-s", "0.05")
    assert ended.code == 0
    assert own_tokens(workplace.output())


def test_slow_rows_do_not_hold_up_the_others(tmp_path: Path) -> None:
    behaviour = Behaviour(latency="0.01", scripts={f"row-{n}": "ok latency=1.5" for n in range(0, 100, 20)})
    workplace, _ = trial(tmp_path, behaviour, 100, "--in-flight", "10")
    assert workplace.seen["peak_in_flight"] <= 10  # type: ignore[attr-defined]
    assert own_tokens(workplace.output())


def test_a_server_that_is_gone_for_a_while_costs_no_attempt(tmp_path: Path) -> None:
    behaviour = Behaviour(latency="0.05", outages=[Outage(0.2, 0.8, "refuse")])
    workplace, ended = trial(tmp_path, behaviour, 300, "--in-flight", "10", "--attempts", "1")
    assert ended.code == 0, ended.err
    assert own_tokens(workplace.output())


def test_a_server_that_was_never_there_stops_the_run_resumable(workplace: Workplace) -> None:
    workplace.write_rows(3)
    ended = workplace.rowmill(
        "run",
        "in.csv",
        "-p",
        "{{ text }}",
        "-m",
        "x",
        "--url",
        "http://127.0.0.1:9/v1",
        "-o",
        "o.jsonl",
        "--max-outage-s",
        "1",
    )
    assert ended.code == 4
    assert "127.0.0.1:9" in ended.err


def test_a_retry_after_is_waited_for(tmp_path: Path) -> None:
    behaviour = Behaviour(scripts={"row-0": "429 retry-after=1.2, ok"}, log=True)
    workplace, ended = trial(tmp_path, behaviour, 3, "--in-flight", "1")
    assert ended.code == 0
    first_s, second_s = (at_s for at_s, token, _ in workplace.seen["log"] if token == "row-0")  # type: ignore[attr-defined]
    assert second_s - first_s > 1.2
    assert workplace.seen["tokens"]["row-0"] == 2  # type: ignore[attr-defined]


def test_too_long_a_wait_is_told_and_not_slept(tmp_path: Path) -> None:
    _, ended = trial(tmp_path, Behaviour(scripts={"*": "429 retry-after=86400..."}), 50)
    assert ended.code == 4
    assert "86400" in ended.err or "86,400" in ended.err


def test_an_untrusted_certificate_stops_at_once_and_names_the_option(tmp_path: Path) -> None:
    import ssl

    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Simulator(Behaviour(), tls=context) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(10)
        ended = workplace.run()
        assert ended.code == 4
        assert "--ca-file" in ended.err
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        assert workplace.run("--ca-file", "ca.pem").code == 0


def test_answers_by_schema_are_typed_columns(tmp_path: Path) -> None:
    workplace, ended = trial(
        tmp_path, Behaviour(), 20, "--answer", "label: positive|negative, score: number", "-o", "out.jsonl"
    )
    assert ended.code == 0, ended.err
    for row in workplace.output():
        assert row["label"] in ("positive", "negative")
        assert isinstance(row["score"], int | float)


def test_an_invalid_answer_is_reported_with_its_path(tmp_path: Path) -> None:
    behaviour = Behaviour(scripts={"row-1": 'ok text=\'{"label": "neither"}\''})
    workplace, ended = trial(tmp_path, behaviour, 3, "--answer", "label: positive|negative")
    assert ended.code == 3
    row = workplace.output()[1]
    assert row["_status"] == "invalid"
    assert "$.label" in row["_error"]


def test_the_most_frequent_errors_are_named_at_the_end_and_in_the_status(tmp_path: Path) -> None:
    scripts = {f"row-{number}": "400" for number in range(8)} | {"row-8": "refused"}
    with Simulator(Behaviour(scripts=scripts)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(12)
        ended = workplace.run("--json")
        errors = ended.json()["errors"]
        assert [error["count"] for error in errors] == [8, 1]
        assert "HTTP 400" in errors[0]["error"]
        assert "errors     8 x HTTP 400" in ended.err
        status = workplace.rowmill("status", "out.jsonl", "--json").json()
        assert status["errors"] == errors
        assert "errors     8 x HTTP 400" in workplace.rowmill("status", "out.jsonl").out
