"""`rowmill resume`: what the run file holds is gone on with, without its job file or source."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.command_line import call
from tests.workplace import Workplace, own_tokens

import rowmill
from rowmill.simulator import Behaviour, Simulator


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Workplace]:
    """A run of four rows from a job file that ended before any was answered; job file, prompt and source are gone."""
    with Simulator(Behaviour(scripts={"*": "404 code=model_not_found, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(4)
        workplace.write("prompt.txt", "Say it: {{ text }}")
        workplace.write(
            "job.yaml",
            "source: in.csv\nprompt: '@prompt.txt'\n"
            f"endpoints: [{{model: sim, url: {simulator.url}}}]\noutput: out.jsonl\n",
        )
        assert workplace.rowmill("run", "job.yaml").code == 4
        for name in ("in.csv", "job.yaml", "prompt.txt"):
            (tmp_path / name).unlink()
        yield workplace


def test_pending_rows_are_sent_and_the_output_is_written(stopped: Workplace) -> None:
    ended = stopped.rowmill("resume", "out.jsonl", "--json")
    assert ended.code == 0, ended.err
    assert ended.json()["counts"] == {"ok": 4}
    assert own_tokens(stopped.output())


def test_the_run_file_itself_may_be_named(stopped: Workplace) -> None:
    assert stopped.rowmill("resume", "out.jsonl.rowmill", "-y").code == 0
    assert own_tokens(stopped.output())


def test_a_run_file_and_its_output_may_have_been_moved(stopped: Workplace) -> None:
    (stopped.folder / "there").mkdir()
    (stopped.folder / "out.jsonl.rowmill").rename(stopped.folder / "there" / "x.rowmill")
    assert stopped.rowmill("resume", "there/y.jsonl", "--run-file", "there/x.rowmill").code == 0
    assert own_tokens(stopped.output("there/y.jsonl"))


def test_an_input_that_was_not_read_to_its_end_is_said_and_no_output_is_written(stopped: Workplace) -> None:
    with closing(sqlite3.connect(stopped.folder / "out.jsonl.rowmill")) as file:
        file.execute("UPDATE meta SET value = '0' WHERE name = 'complete'")
        file.commit()
    ended = stopped.rowmill("resume", "out.jsonl")
    assert ended.code == 4, ended.err
    assert "only the 4 rows that are in the run file are answered" in ended.err
    assert "run the job's first command again" in ended.err
    assert "rowmill export out.jsonl -o" in ended.err
    assert not (stopped.folder / "out.jsonl").exists()
    assert stopped.rowmill("export", "out.jsonl", "-o", "part.jsonl").code == 0
    assert own_tokens(stopped.output("part.jsonl"))


def test_a_finished_run_has_nothing_to_go_on_with(workplace: Workplace) -> None:
    workplace.write_rows(2)
    workplace.run()
    ended = workplace.rowmill("resume", "out.jsonl")
    assert ended.code == 0
    assert "Nothing to do" in ended.err
    assert workplace.request_total() == 2


def test_rows_that_ended_badly_stay_as_they_are(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "400, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(3)
        assert workplace.run().code == 3
        assert workplace.rowmill("resume", "out.jsonl").code == 3
        assert workplace.request_total() == 3


def test_a_run_that_is_not_there_is_told(workplace: Workplace) -> None:
    ended = workplace.rowmill("resume", "nothing.jsonl")
    assert ended.code == 2
    assert "there is no run file nothing.jsonl.rowmill" in ended.err


@pytest.mark.parametrize("command", ["resume", "retry"])
def test_a_run_that_calls_a_function_is_gone_on_with_by_the_same_call_only(tmp_path: Path, command: str) -> None:
    rowmill.map(["one", "two"], call=str.upper, run_file=str(tmp_path / "calls.rowmill"))
    ended = call([command, "calls.rowmill"], tmp_path, {})
    assert ended.code == 2
    assert "the same call in Python goes on with it" in ended.err
