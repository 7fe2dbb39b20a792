"""Run files of format 1, as version 0.1.0 left them, are read as they are and brought up to date where they go on."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.workplace import Workplace

import rowmill
from rowmill.simulator import Behaviour, Simulator
from rowmill.store.connection import FORMAT

LEFT = Path(__file__).parent.parent / "fixtures" / "run_files" / "format1"
COUNTS = {
    "finished": {"ok": 6},
    "dedupe": {"ok": 6},
    "cascade": {"ok": 6},
    "batch": {"ok": 1, "failed": 1},
    "killed": {"ok": 2},
}
FINISHED = ("finished", "dedupe", "cascade")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Workplace]:
    """All of them in one folder, their server at another port than it was."""
    with Simulator(Behaviour()) as simulator:
        for path in LEFT.iterdir():
            if path.suffix == ".gz":
                unpacked = tmp_path / path.stem
                unpacked.write_bytes(gzip.decompress(path.read_bytes()))
                moved(unpacked, simulator.url)
            else:
                shutil.copy(path, tmp_path / path.name)
        yield Workplace(tmp_path, simulator)


def moved(run_file: Path, url: str) -> None:
    with closing(sqlite3.connect(run_file)) as file:
        for port in (8941, 8942):
            file.execute("UPDATE meta SET value = replace(value, ?, ?)", (f"http://127.0.0.1:{port}/v1", url))
        file.commit()


def format_of(run_file: Path) -> int:
    with closing(sqlite3.connect(run_file)) as file:
        return int(file.execute("PRAGMA user_version").fetchone()[0])


def requests(workplace: Workplace, name: str) -> int:
    return int(workplace.rowmill("status", f"{name}.jsonl", "--json").json()["requests"])


@pytest.mark.parametrize("name", COUNTS)
def test_status_and_rows_read_them_and_change_nothing(left: Workplace, name: str) -> None:
    standing = left.rowmill("status", f"{name}.jsonl", "--json").json()
    assert standing["counts"] == COUNTS[name]
    assert standing["state"] == ("killed" if name == "killed" else "finished")
    assert standing["pending"] == (4 if name == "killed" else 0)
    shown = left.rowmill("rows", f"{name}.jsonl", "--status", "ok", "--json")
    assert shown.code == 0, shown.err
    assert shown.out.count('"reply"') >= 1
    assert format_of(left.folder / f"{name}.jsonl.rowmill") == 1


@pytest.mark.parametrize("name", [*FINISHED, "batch"])
def test_an_export_is_the_output_that_was_written_then(left: Workplace, name: str) -> None:
    assert left.rowmill("export", f"{name}.jsonl", "-o", "again.jsonl").code == 0
    assert (left.folder / "again.jsonl").read_bytes() == (LEFT / f"{name}.jsonl").read_bytes()
    assert format_of(left.folder / f"{name}.jsonl.rowmill") == 1


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_one_has_nothing_to_go_on_with_and_its_output_is_written_as_it_was(
    left: Workplace, name: str
) -> None:
    (left.folder / f"{name}.jsonl").unlink()
    before = requests(left, name)
    assert left.rowmill("resume", f"{name}.jsonl").code == 0
    assert (left.folder / f"{name}.jsonl").read_bytes() == (LEFT / f"{name}.jsonl").read_bytes()
    assert requests(left, name) == before
    assert format_of(left.folder / f"{name}.jsonl.rowmill") == FORMAT


@pytest.mark.parametrize("command", ["resume", "run"])
def test_one_that_was_killed_is_gone_on_with_and_its_answers_are_kept(left: Workplace, command: str) -> None:
    before = {row["_row"]: row for row in exported(left, "killed")}
    if command == "run":
        job = (left.folder / "killed.yaml").read_text().replace("http://127.0.0.1:8942/v1", left.simulator.url)
        left.write("killed.yaml", job)
    ended = left.rowmill(command, "killed.yaml" if command == "run" else "killed.jsonl")
    assert ended.code == 0, ended.err
    rows = left.output("killed.jsonl")
    assert [row["_row"] for row in rows] == list(range(6))
    assert {row["_status"] for row in rows} == {"ok"}
    assert {index: row for index, row in enumerate(rows) if index in before} == before
    assert left.simulator.counters()["requests"] == 4


def exported(workplace: Workplace, name: str) -> list[dict[str, object]]:
    assert workplace.rowmill("export", f"{name}.jsonl", "-o", "before.jsonl").code == 0
    return workplace.output("before.jsonl")


@pytest.mark.parametrize(("name", "sent"), [("finished", 6), ("dedupe", 5), ("cascade", 6)])
def test_rows_of_them_can_be_sent_again(left: Workplace, name: str, sent: int) -> None:
    before = requests(left, name)
    ended = left.rowmill("retry", f"{name}.jsonl", "--status", "ok")
    assert ended.code == 0, ended.err
    assert requests(left, name) == before + sent
    assert left.rowmill("status", f"{name}.jsonl", "--json").json()["counts"] == COUNTS[name]


def test_a_bad_line_of_a_batch_file_stays_bad_and_nothing_is_sent(left: Workplace) -> None:
    assert left.rowmill("retry", "batch.jsonl").code == 3
    assert left.output("batch.jsonl")[0]["custom_id"] == "a"
    assert [line["custom_id"] for line in left.output("batch.jsonl.failed.jsonl")] == ["b"]
    assert left.simulator.counters()["requests"] == 0


def test_a_call_goes_on_with_what_it_returned(left: Workplace) -> None:
    called: list[str] = []

    def shout(text: str) -> str:
        called.append(text)
        return text.upper()

    values = rowmill.map(["one", "two", "three"], call=shout, run_file=str(left.folder / "calls.rowmill"))
    assert (values, called) == (["ONE", "TWO", "THREE"], ["three"])


def test_one_can_be_purged(left: Workplace) -> None:
    assert left.rowmill("purge", "batch.jsonl", "-y").code == 0
    refused = left.rowmill("export", "batch.jsonl", "-o", "x.jsonl")
    assert refused.code == 2
    assert "-o ANSWERS.csv" in refused.err
    assert left.rowmill("export", "batch.jsonl", "-o", "x.csv").code == 0
    assert [row["_status"] for row in left.csv_output("x.csv")] == ["ok", "failed"]
