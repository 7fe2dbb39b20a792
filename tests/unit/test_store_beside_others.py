"""The run file while others read it, lock it, or while its input changes: what was paid for is committed and read."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_store import answers, attempt, chunks_of, outcome, session

from rowmill.errors import LockedError
from rowmill.ports import Chunk
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run_file = tmp_path / "out.jsonl.rowmill"
    connections.create(run_file)
    return run_file


def spool_of(writer: Writer, chunks: Iterator[Chunk], *, is_sample: bool = False) -> Spool:
    return Spool(writer, SpoolRules(("text",), lambda columns: None, is_sample=is_sample), chunks)


def stored_attempts(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (number,) = connection.execute("SELECT count(*) FROM attempts").fetchone()
    return int(number)


def test_what_is_read_stays_as_it_was_while_the_input_is_matched_anew(path: Path) -> None:
    session(path, chunks_of(list("abcdef")))
    with RunFileReader(path) as reader:
        looks = reader.outcomes()
        found = [next(looks)]
        session(path, chunks_of(list("fedcba")))
        found += looks
    rows = [
        (record["text"], None if one is None else one.answer)
        for chunk, outcomes in found
        for record, one in zip(chunk.records(), outcomes, strict=True)
    ]
    assert rows == [(t, b'{"answer": "answer to %b"}' % t.encode()) for t in "abcdef"]
    assert answers(path) == [(t, f"answer to {t}") for t in "fedcba"]


def test_replies_are_committed_while_a_changed_input_is_still_coming(path: Path) -> None:
    session(path, chunks_of(list("abc")), answer=0)
    came, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[Chunk]:
        yield next(chunks_of(list("xbc")))
        came.set()
        go_on.wait(30)

    writer = Writer(path)
    spool = spool_of(writer, slowly())
    spool.start()
    assert came.wait(30)
    writer.save_attempt(attempt(0, "paid for", "unread"))
    writer.hurry()
    try:
        for _ in range(300):
            if stored_attempts(path):
                break
            go_on.wait(0.1)
        assert stored_attempts(path) == 1
    finally:
        go_on.set()
        spool.join(30)
        writer.close(None)


def test_a_changed_input_that_is_broken_off_changes_nothing(path: Path) -> None:
    session(path, chunks_of(list("abc")))

    def broken() -> Iterator[Chunk]:
        yield next(chunks_of(list("xbc")))
        raise OSError("unplugged")

    writer = Writer(path)
    spool = spool_of(writer, broken())
    with pytest.raises(OSError, match="unplugged"):
        spool.read_all()
    writer.close(None)
    assert answers(path) == [(t, f"answer to {t}") for t in "abc"]
    session(path, chunks_of(list("cba")))
    assert answers(path) == [(t, f"answer to {t}") for t in "cba"]


def test_replies_wait_for_a_run_file_that_another_program_has_locked(path: Path) -> None:
    session(path, chunks_of(list("abc")), answer=0)
    writer = Writer(path)
    told = threading.Event()
    words: list[str] = []

    def notify(text: str) -> None:
        words.append(text)
        told.set()

    writer.notify = notify
    writer._connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for index in range(3):
        writer.save_attempt(attempt(index, "paid for", "unread"))
    assert told.wait(30)
    other.execute("ROLLBACK")
    other.close()
    writer.close(None)
    assert stored_attempts(path) == 3
    assert len(words) == 1
    assert "locked by another program" in words[0]


def test_a_run_file_that_another_program_has_locked_is_not_called_damaged(path: Path) -> None:
    with pytest.raises(LockedError, match="locked by another program"), connections.translated(path):
        raise sqlite3.OperationalError("database is locked")


def test_a_record_that_no_column_can_hold_takes_no_other_along(path: Path) -> None:
    session(path, chunks_of(list("abc")), answer=0)
    writer = Writer(path)
    for index, tokens in enumerate((3, 10**20, 5)):
        writer.save_attempt(attempt(index, f"reply {index}").replaced(input_tokens=tokens, error="half \ud83d"))
        writer.save_outcome(outcome(index, "an answer").replaced(output_tokens=tokens))
    writer.close(None)
    with RunFileReader(path) as reader:
        assert [reader.attempts(index)[0]["input_tokens"] for index in range(3)] == [3, None, 5]
        assert [reader.attempts(index)[0]["reply"] for index in range(3)] == ["reply 0", "reply 1", "reply 2"]
    assert [answer for _, answer in answers(path)] == ["an answer"] * 3


def test_a_sample_is_never_taken_for_the_whole_input(path: Path) -> None:
    writer = Writer(path)
    writer.do(changes.begin_sample)
    spool_of(writer, chunks_of(list("abc"))).read_all()
    writer.close(None)  # killed here
    with RunFileReader(path) as reader:
        assert not reader.is_complete()
    writer = Writer(path)
    assert writer.do(changes.take_over_sample)
    writer.close(None)
    with RunFileReader(path) as reader:
        assert not reader.is_complete()
