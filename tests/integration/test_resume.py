"""The same command again, over inputs and jobs that have changed in between (CASES E)."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.workplace import Workplace, own_tokens

from rowmill.simulator import Behaviour, Simulator


def test_a_second_run_over_a_finished_output_sends_nothing_and_says_so(workplace: Workplace) -> None:
    workplace.write_rows(50)
    assert workplace.run().code == 0
    before = (workplace.folder / "out.jsonl").read_bytes()
    again = workplace.run()
    assert again.code == 0
    assert "nothing was sent" in again.err.lower()
    assert workplace.request_total() == 50
    assert (workplace.folder / "out.jsonl").read_bytes() == before


def test_an_output_without_a_run_file_is_not_overwritten(workplace: Workplace) -> None:
    workplace.write_rows(3)
    workplace.write("out.jsonl", "precious\n")
    refused = workplace.run()
    assert refused.code == 2
    assert "--fresh" in refused.err
    assert (workplace.folder / "out.jsonl").read_text() == "precious\n"


def test_fresh_renames_what_was_there(workplace: Workplace) -> None:
    workplace.write_rows(3)
    workplace.write("out.jsonl", "precious\n")
    assert workplace.run("--fresh").code == 0
    assert (workplace.folder / "out.jsonl.old").read_text() == "precious\n"
    assert workplace.run("--fresh").code == 0
    assert workplace.request_total() == 6
    assert {path.name for path in workplace.folder.glob("*old*")} >= {"out.jsonl.old", "out.jsonl.rowmill.old2"}


def test_rows_added_at_the_end_cost_only_their_own_requests(workplace: Workplace) -> None:
    workplace.write_rows(1200)
    workplace.run()
    workplace.write_rows(1210)
    assert workplace.run().code == 0
    assert workplace.request_total() == 1210
    assert own_tokens(workplace.output())


def test_rows_inserted_at_the_top_cost_only_their_own_requests(workplace: Workplace) -> None:
    rows = workplace.write_rows(1500).read_text().splitlines()
    workplace.run()
    workplace.write("in.csv", "\n".join([rows[0], "9001,[[row-9001]]", "9002,[[row-9002]]", *rows[1:]]) + "\n")
    ended = workplace.run()
    assert ended.code == 0
    assert workplace.request_total() == 1502
    assert own_tokens(workplace.output())
    assert [row["_row"] for row in workplace.output()] == list(range(1502))


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (["--sample", "4"], [], "other rows of the input are chosen: 4 finished rows were found again among them"),
        (["--where", "id | int > 3"], [], "other rows of the input are chosen: 6 finished rows were found again"),
        ([], ["--where", "id | int > 3"], "6 finished rows were found again among them, 4 are no longer among them"),
        (["--sample", "4"], ["--sample", "4"], ""),
        ([], [], ""),
    ],
)
def test_choosing_other_rows_is_told_from_an_input_that_has_changed(
    workplace: Workplace, first: list[str], then: list[str], words: str
) -> None:
    workplace.write_rows(10)
    assert workplace.run(*first).code == 0
    ended = workplace.run(*then)
    assert ended.code == 0
    assert words in ended.err
    assert ("found again" in ended.err) is bool(words)
    assert "the input has changed" not in ended.err
    assert max(workplace.requests().values()) == 1


def test_a_changed_prompt_is_shown_and_refused_where_nobody_can_be_asked(workplace: Workplace) -> None:
    workplace.write_rows(20)
    workplace.run()
    refused = workplace.run("-p", "Say it again: {{ text }}")
    assert refused.code == 2
    assert "prompt changed" in refused.err
    assert "\n  - Say it: {{ text }}\n  + Say it again: {{ text }}\n" in refused.err
    assert "20 finished rows" in refused.err
    assert workplace.request_total() == 20


def test_keep_accepts_the_finished_rows_for_good(workplace: Workplace) -> None:
    workplace.write_rows(20)
    workplace.run("--limit", "10")
    assert workplace.run("-p", "Again: {{ text }}", "--on-change", "keep").code == 0
    assert workplace.request_total() == 20
    assert workplace.run("-p", "Again: {{ text }}").code == 0
    assert workplace.request_total() == 20


def test_what_was_kept_was_kept_for_that_job_and_is_asked_about_again_for_the_next(workplace: Workplace) -> None:
    workplace.write_rows(20)
    workplace.run("--limit", "10")
    assert workplace.run("-p", "Again: {{ text }}", "--on-change", "keep").code == 0
    refused = workplace.run("-p", "Thirdly: {{ text }}")
    assert refused.code == 2
    assert "20 finished rows" in refused.err
    assert workplace.run("-p", "Thirdly: {{ text }}", "--on-change", "rerun").code == 0
    assert workplace.request_total() == 40


def test_rerun_sends_the_finished_rows_again(workplace: Workplace) -> None:
    workplace.write_rows(20)
    workplace.run()
    assert workplace.run("-p", "Again: {{ text }}", "--on-change", "rerun").code == 0
    assert workplace.request_total() == 40


def test_every_part_of_the_ask_is_part_of_the_version(workplace: Workplace) -> None:
    workplace.write_rows(5)
    workplace.run("--temperature", "0")
    for change, word in (
        (["--temperature", "1"], "temperature: 0"),
        (["--temperature", "0", "--max-tokens", "9"], "max_tokens"),
        (["--temperature", "0", "--system", "Be short."], "system message added"),
        (["--temperature", "0", "--answer", "label: a|b"], "schema added"),
    ):
        refused = workplace.run(*change)
        assert refused.code == 2, change
        assert word in refused.err
    other = workplace.rowmill(
        "run",
        "in.csv",
        "-p",
        "Say it: {{ text }}",
        "-m",
        "other",
        "--url",
        workplace.simulator.url,
        "-o",
        "out.jsonl",
        "--temperature",
        "0",
    )
    assert other.code == 2
    assert "model: sim -> other" in other.err


def test_limits_and_time_limits_are_no_change(workplace: Workplace) -> None:
    workplace.write_rows(5)
    workplace.run()
    assert workplace.run("--in-flight", "3", "--timeout-s", "9", "--attempts", "2").code == 0
    assert workplace.request_total() == 5


def test_four_equal_rows_have_four_answers(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n" + "7,[[row-7]]\n" * 4)
    workplace.run("--limit", "1")
    assert workplace.run().code == 0
    assert len(workplace.output()) == 4
    assert own_tokens(workplace.output())
    assert workplace.request_total() == 4


def test_rows_with_equal_ids_keep_their_own_answers(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n7,[[row-a]]\n7,[[row-b]]\n7,[[row-a]]\n")
    workplace.run()
    assert [row["answer"] for row in workplace.output()] == ["row-a", "row-b", "row-a"]


def test_retry_takes_up_failed_rows_and_they_stay_mended(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-3": "400, 400, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(10)
        first = workplace.run()
        assert first.code == 3
        assert [row["id"] for row in workplace.output("out.jsonl.failed.jsonl")] == ["3"]
        assert workplace.rowmill("retry", "out.jsonl").code == 3
        assert workplace.rowmill("retry", "out.jsonl", "--max-tokens", "99").code == 0
        assert own_tokens(workplace.output())
        assert not (tmp_path / "out.jsonl.failed.jsonl").exists()
        assert workplace.run().code == 0
        assert workplace.request_total() == 12


def test_retry_of_truncated_rows_stays_mended_under_the_plain_command(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-3": "length, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(10)
        assert workplace.run("--max-tokens", "5").code == 3
        assert workplace.output()[3]["_status"] == "truncated"
        assert workplace.rowmill("retry", "out.jsonl", "--status", "truncated", "--max-tokens", "512").code == 0
        assert workplace.run("--max-tokens", "5").code == 0
        assert workplace.request_total() == 11


def test_failed_rows_are_not_paid_again_by_a_plain_second_run(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-3": "400..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(10)
        assert workplace.run().code == 3
        assert workplace.run().code == 3
        assert workplace.request_total() == 10


def test_a_damaged_run_file_is_left_alone_and_what_is_readable_is_offered(workplace: Workplace) -> None:
    workplace.write_rows(3000)
    workplace.run()
    path = workplace.folder / "out.jsonl.rowmill"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    damaged = path.read_bytes()
    refused = workplace.run()
    assert refused.code == 2
    assert "damaged" in refused.err
    assert "rowmill export" in refused.err
    assert path.read_bytes() == damaged
    saved = workplace.rowmill("export", "out.jsonl", "-o", "saved.jsonl")
    assert "Traceback" not in saved.err


def test_the_run_file_is_for_its_owner_alone(workplace: Workplace) -> None:
    workplace.write_rows(3)
    workplace.run()
    assert (workplace.folder / "out.jsonl.rowmill").stat().st_mode & 0o777 == 0o600


def test_every_attempt_is_logged_with_its_cause(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "503, 502, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(3)
        assert workplace.run("--backoff-s", "0.05").code == 0
        shown = workplace.rowmill("rows", "out.jsonl", "--json", "--limit", "2")
        row = [json.loads(line) for line in shown.out.splitlines()][1]
        assert [a["status_code"] for a in row["attempts"]] == [503, 502, 200]
        assert [a["kind"] for a in row["attempts"]] == ["server", "server", None]
        assert workplace.output()[1]["_attempts"] == 3


def test_an_interrupted_source_of_standard_input_goes_on_from_the_spool(workplace: Workplace) -> None:
    lines = "".join(f'{{"id": {n}, "text": "[[row-{n}]]"}}\n' for n in range(30))
    done = workplace.rowmill(*workplace.arguments("-"), "--limit", "10", stdin=lines)
    assert done.code == 0
    again = workplace.rowmill(*workplace.arguments("-"))
    assert again.code == 0
    assert workplace.request_total() == 10
    assert len(workplace.output()) == 10


def test_the_schema_can_be_read_as_sql(workplace: Workplace) -> None:
    """The run file is SQLite: a user's own queries work on it."""
    workplace.write_rows(3)
    workplace.run()
    connection = sqlite3.connect(workplace.folder / "out.jsonl.rowmill")
    assert connection.execute("SELECT status, count(*) FROM rows GROUP BY status").fetchall() == [("ok", 3)]
    connection.close()


def test_a_change_is_noticed_after_a_retry_too(workplace: Workplace) -> None:
    workplace.write_rows(5)
    assert workplace.run().code == 0
    assert workplace.rowmill("retry", "out.jsonl", "--status", "ok").code == 0
    changed = workplace.run("-p", "Another question: {{ text }}")
    assert changed.code == 2
    assert "prompt changed" in changed.err
