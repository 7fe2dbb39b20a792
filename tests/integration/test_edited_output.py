"""What somebody has changed in an output, or in the file of failures, is never written over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator

EDITED = '{"id": 0, "answer": "mine"}\n'


@pytest.fixture
def done(workplace: Workplace) -> Workplace:
    """A finished run of three rows."""
    workplace.write_rows(3)
    assert workplace.run().code == 0
    return workplace


def refused(workplace: Workplace, *words: str, name: str = "out.jsonl") -> None:
    before = (workplace.folder / name).read_bytes()
    requests = workplace.request_total()
    ended = workplace.rowmill(*words)
    assert ended.code == 2, ended.err
    assert f"{name} is not as this run left it" in ended.err
    assert "move it away" in ended.err
    assert (workplace.folder / name).read_bytes() == before
    assert workplace.request_total() == requests


def changed(workplace: Workplace, *statements: str) -> None:
    with closing(sqlite3.connect(workplace.folder / "out.jsonl.rowmill")) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()


def test_the_same_command_does_not_write_over_an_edited_output(done: Workplace) -> None:
    done.write("out.jsonl", EDITED)
    refused(done, *done.arguments())


def test_new_rows_are_not_sent_where_the_output_was_edited(done: Workplace) -> None:
    done.write("out.jsonl", EDITED)
    done.write_rows(5)
    refused(done, *done.arguments())


def test_retry_does_not_write_over_an_edited_output(done: Workplace) -> None:
    done.write("out.jsonl", EDITED)
    refused(done, "retry", "out.jsonl", "--status", "ok")


def test_an_output_as_the_run_left_it_is_replaced(done: Workplace) -> None:
    done.write_rows(5)
    assert done.run().code == 0
    assert len(done.output()) == 5


def test_an_output_that_was_taken_away_is_written_again(done: Workplace) -> None:
    done.write("out.jsonl", EDITED)
    (done.folder / "out.jsonl").rename(done.folder / "mine.jsonl")
    assert done.run().code == 0
    assert len(done.output()) == 3


def test_a_file_that_came_while_a_run_was_stopped_is_not_its_output(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"*": "404 code=model_not_found..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(3)
        assert workplace.run().code == 4
        workplace.write("out.jsonl", EDITED)
        refused(workplace, *workplace.arguments())


def test_an_edited_file_of_failures_is_kept(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "400, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(3)
        assert workplace.run().code == 3
        workplace.write("out.jsonl.failed.jsonl", '{"id": 1, "text": "mended by hand"}\n')
        refused(workplace, "retry", "out.jsonl", name="out.jsonl.failed.jsonl")


def test_an_edited_output_of_an_earlier_rowmill_is_known_by_what_it_remembers(done: Workplace) -> None:
    changed(done, "DELETE FROM meta WHERE name = 'left'")
    done.write("out.jsonl", EDITED)
    refused(done, *done.arguments())


def test_an_output_that_an_earlier_rowmill_does_not_remember_counts_as_its_own(done: Workplace) -> None:
    changed(done, "DELETE FROM meta WHERE name IN ('left', 'written')")
    assert done.run().code == 0


def test_an_output_that_a_killed_process_has_written_is_the_runs_own(done: Workplace) -> None:
    changed(
        done,
        """UPDATE meta SET value = '{"stamps": {}, "is_writing": true}' WHERE name = 'left'""",
        "DELETE FROM meta WHERE name = 'written'",
    )
    assert done.run().code == 0


def test_an_export_in_the_outputs_place_is_the_runs_own(done: Workplace) -> None:
    assert done.rowmill("export", "out.jsonl", "-o", "out.jsonl", "--meta-prefix", "m_").code == 0
    assert "m_status" in done.output()[0]
    assert done.run().code == 0
    assert "_status" in done.output()[0]


def test_an_export_does_not_write_over_an_edited_output(done: Workplace) -> None:
    done.write("out.jsonl", EDITED)
    refused(done, "export", "out.jsonl", "-o", "out.jsonl")
