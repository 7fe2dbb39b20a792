"""`rowmill purge`: inputs and replies are gone from the bytes of the run file, statuses and answers are not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator
from rowmill.store import meta

ROWS = 700  # more than 64 KB of replies: answers and replies share a dictionary then
SECRETS = (b"text number", b"confidential", b"choices", b"chat.completion")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A run whose rows ended ok, failed with words of the server's, and refused."""
    scripts = {"row-1": "400 message='confidential: text number 1'", "row-2": "refused", "row-3": "think"}
    with Simulator(Behaviour(scripts=scripts)) as simulator:
        workplace = Workplace(tmp_path_factory.mktemp("purge"), simulator)
        workplace.write_rows(ROWS)
        assert workplace.run().code == 3
        yield workplace


@pytest.fixture
def run(template: Workplace, tmp_path: Path) -> Workplace:
    for name in ("in.csv", "out.jsonl", "out.jsonl.rowmill"):
        (tmp_path / name).write_bytes((template.folder / name).read_bytes())
    return Workplace(tmp_path, template.simulator)


def held(run_file: Path) -> list[bytes]:
    """All bytes of a run file and its log, and what is packed in them, by whatever dictionary is there."""
    with closing(sqlite3.connect(f"{run_file.as_uri()}?mode=ro", uri=True)) as file:
        dictionary = meta.dictionary(file)
    shared = [] if dictionary is None else [zstandard.ZstdCompressionDict(dictionary)]
    expanders = [zstandard.ZstdDecompressor(dict_data=data) for data in (None, *shared)]
    contents = [path.read_bytes() for path in run_file.parent.glob(f"{run_file.name}*")]
    contents += [dictionary or b""]
    with closing(sqlite3.connect(f"{run_file.as_uri()}?mode=ro", uri=True)) as file:
        blobs = [
            blob
            for column, table in (("payload", "chunks"), ("body", "attempts"), ("answer", "rows"))
            for (blob,) in file.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
        ]
    for blob in blobs:
        for expander in expanders:
            try:
                contents.append(expander.decompress(bytes(blob), max_output_size=1 << 24))
            except zstandard.ZstdError:
                contents.append(bytes(blob))
    return contents


def test_no_byte_of_an_input_or_a_reply_stays_packed_or_not(run: Workplace) -> None:
    run_file = run.folder / "out.jsonl.rowmill"
    before = held(run_file)
    assert all(any(secret in content for content in before) for secret in SECRETS)
    assert run.rowmill("purge", "out.jsonl", "-y").code == 0
    after = held(run_file)
    assert [secret for secret in SECRETS if any(secret in content for content in after)] == []


def test_statuses_and_answers_stay_and_can_be_exported(run: Workplace) -> None:
    before = {row["_row"]: row for row in run.output()}
    run.rowmill("purge", "out.jsonl", "-y")
    exported = run.rowmill("export", "out.jsonl", "-o", "after.jsonl")
    assert exported.code == 0, exported.err
    assert "without the input's columns: the run file was purged on" in exported.err
    after = {row["_row"]: row for row in run.output("after.jsonl")}
    assert len(after) == ROWS
    for index, row in after.items():
        assert row["_status"] == before[index]["_status"]
        assert row["answer"] == before[index]["answer"]
        assert "text" not in row
    assert after[1]["_error"] == "bad_request (its words were purged)"
    assert run.rowmill("export", "out.jsonl", "-o", "after.parquet").code == 0


def test_status_and_rows_still_show_what_is_there(run: Workplace) -> None:
    before = run.rowmill("status", "out.jsonl", "--json").json()
    run.rowmill("purge", "out.jsonl", "-y")
    after = run.rowmill("status", "out.jsonl", "--json").json()
    assert (after["counts"], after["total"], after["state"]) == (before["counts"], ROWS, "finished")
    assert after["purged"]
    assert "purged     " in run.rowmill("status", "out.jsonl").out
    shown = run.rowmill("rows", "out.jsonl", "--status", "refused", "--json")
    assert shown.code == 0, shown.err
    assert "text number" not in shown.out


def test_nothing_can_be_sent_from_it_any_more(run: Workplace) -> None:
    run.rowmill("purge", "out.jsonl", "-y")
    before = run.request_total()
    for words in (run.arguments(), ["resume", "out.jsonl"], ["retry", "out.jsonl"]):
        ended = run.rowmill(*words)
        assert ended.code == 2, words
        assert "out.jsonl.rowmill was purged on" in ended.err
        assert "no row of it can be sent again" in ended.err
    read_again = run.rowmill("export", "out.jsonl", "-o", "x.jsonl", "--answer", "said: string")
    assert read_again.code == 2
    assert "were purged" in read_again.err
    assert run.request_total() == before


def test_without_somebody_to_ask_it_is_refused(run: Workplace) -> None:
    before = (run.folder / "out.jsonl.rowmill").read_bytes()
    ended = run.rowmill("purge", "out.jsonl")
    assert ended.code == 2
    assert "add -y/--yes" in ended.err
    assert (run.folder / "out.jsonl.rowmill").read_bytes() == before


@pytest.mark.slow
def test_a_reader_that_keeps_the_old_bytes_in_the_log_is_told_of_and_the_next_purge_takes_them(
    run: Workplace,
) -> None:
    run_file = run.folder / "out.jsonl.rowmill"
    with closing(sqlite3.connect(run_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchone()
        ended = run.rowmill("purge", "out.jsonl", "-y")
        assert ended.code == 2
        assert "is being read by another program" in ended.err
    assert run.rowmill("purge", "out.jsonl", "-y").code == 0
    assert not any(secret in content for secret in SECRETS for content in held(run_file))
