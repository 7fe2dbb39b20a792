"""Equal rows are sent once, and every one of them has its output."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.workplace import Workplace, kill, until

from rowmill.simulator import Behaviour, Simulator


def write_rows(workplace: Workplace, tokens: list[str]) -> None:
    lines = [f"{n},[[{token}]]" for n, token in enumerate(tokens)]
    workplace.write("in.csv", "\n".join(["id,text", *lines]) + "\n")


def shown(workplace: Workplace, name: str = "out.jsonl") -> list[tuple[str, str, str, int | None]]:
    return [(row["id"], row["answer"], row["_status"], row.get("_duplicate_of")) for row in workplace.output(name)]


def test_equal_rows_are_sent_once_and_stand_in_order(workplace: Workplace) -> None:
    write_rows(workplace, ["a", "b", "a", "c", "b", "a"])
    ended = workplace.run("--dedupe", "--json")
    assert ended.code == 0, ended.err
    assert workplace.requests() == {"a": 1, "b": 1, "c": 1}
    assert shown(workplace) == [
        ("0", "a", "ok", None),
        ("1", "b", "ok", None),
        ("2", "a", "ok", 0),
        ("3", "c", "ok", None),
        ("4", "b", "ok", 1),
        ("5", "a", "ok", 0),
    ]
    duplicate = workplace.output()[2]
    assert (duplicate["_attempts"], duplicate["_input_tokens"], duplicate["_endpoint"]) == (0, 0, "sim")
    assert ended.json()["counts"] == {"ok": 6}
    assert ended.json()["rows"] == 6


def test_without_the_option_equal_rows_are_all_sent(workplace: Workplace) -> None:
    write_rows(workplace, ["a", "a"])
    assert workplace.run().code == 0
    assert workplace.requests() == {"a": 2}
    assert "_duplicate_of" not in workplace.output()[0]


def test_duplicates_end_as_their_leader_and_a_retry_sends_it_alone(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"a": "400"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, ["a", "b", "a"])
        ended = workplace.run("--dedupe", "--json")
        assert ended.code == 3
        assert ended.json()["counts"] == {"failed": 2, "ok": 1}
        assert [row["_status"] for row in workplace.output()] == ["failed", "ok", "failed"]
        assert len(workplace.output("out.jsonl.failed.jsonl")) == 2
        again = workplace.rowmill("retry", "out.jsonl", "--json")
        assert again.code == 0, again.err
        assert workplace.requests() == {"a": 2, "b": 1}
    assert [row["answer"] for row in workplace.output()] == ["a", "b", "a"]


@pytest.mark.slow
def test_a_run_that_was_killed_sends_no_duplicate_afterwards(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.02")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, [f"t{n % 100}" for n in range(5000)])
        process = workplace.start("--dedupe", "--in-flight", "2")
        until(lambda: workplace.request_total() > 30, process)
        kill(process)
        before = workplace.request_total()
        assert workplace.run("--dedupe").code == 0
        assert workplace.request_total() <= 100 + before
        assert max(workplace.requests().values()) <= 2
    rows = workplace.output()
    assert [row["answer"] for row in rows] == [f"t{n % 100}" for n in range(5000)]


def test_duplicates_find_their_leader_again_in_a_changed_input(workplace: Workplace) -> None:
    write_rows(workplace, ["a", "b", "a", "b"])
    workplace.run("--dedupe")
    write_rows(workplace, ["new", "b", "a", "a", "b", "c", "a"])
    ended = workplace.run("--dedupe")
    assert ended.code == 0, ended.err
    assert workplace.requests() == {"a": 1, "b": 1, "new": 1, "c": 1}
    rows = workplace.output()
    assert [row["answer"] for row in rows] == ["new", "b", "a", "a", "b", "c", "a"]
    for row in rows:
        leader = row.get("_duplicate_of")
        assert leader is None or rows[leader]["answer"] == row["answer"]


def test_a_changed_prompt_sends_each_leader_again_once(workplace: Workplace) -> None:
    write_rows(workplace, ["a", "b", "a"])
    workplace.run("--dedupe")
    ended = workplace.run("--dedupe", "-p", "Other: {{ text }}", "--on-change", "rerun")
    assert ended.code == 0, ended.err
    assert workplace.requests() == {"a": 2, "b": 2}
    assert [row["_duplicate_of"] for row in workplace.output()] == [None, None, 0]


def test_duplicates_are_exported_and_counted_while_their_leader_is_pending(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"a": "hang"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, ["a", "b", "a", "b"])
        process = workplace.start("--dedupe")
        until(lambda: _finished(workplace) == 2, process)
        assert workplace.rowmill("export", "out.jsonl", "-o", "part.jsonl").code == 0
        status = workplace.rowmill("status", "out.jsonl", "--json").json()
        kill(process)
    assert shown(workplace, "part.jsonl") == [("1", "b", "ok", None), ("3", "b", "ok", 1)]
    assert status["counts"] == {"ok": 2}
    assert status["pending"] == 2


def _finished(workplace: Workplace) -> int:
    """Rows in the run file that count as finished."""
    path = workplace.folder / "out.jsonl.rowmill"
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        query = "SELECT count(*) FROM rows AS r WHERE r.status = 'ok' OR r.duplicate_of IN (SELECT id FROM rows)"
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()
