"""The run file: what is committed, how a changed input finds its rows again, how damage is told."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rowmill.core.rows.chunks import ObjectChunk
from rowmill.errors import LockedError, OutputError, RunFileError
from rowmill.ports import Chunk
from rowmill.providers.credentials import redact, spellings
from rowmill.records import Attempt, Outcome, Row, Status
from rowmill.store import changes
from rowmill.store import connection as connections
from rowmill.store.lock import RunFileLock
from rowmill.store.packing import SAMPLE_BYTES, Packer, dictionary_of
from rowmill.store.pending_rows import PendingRows, PendingRules
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run_file = tmp_path / "out.jsonl.rowmill"
    connections.create(run_file)
    return run_file


def chunks_of(texts: Sequence[str], size: int = 3, **others: str) -> Iterator[Chunk]:
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        yield ObjectChunk(range(start, start + len(part)), [{"text": text, **others} for text in part], {})


def session(
    path: Path, chunks: Iterator[Chunk] | None, *, answer: int | None = None, names: Sequence[str] | None = ("text",)
) -> list[Row]:
    """One start on the run file: hands out the pending rows and answers the first `answer` of them."""
    writer = Writer(path)
    asyncio.run(_begin(writer))
    spool = Spool(writer, SpoolRules(names, lambda columns: None), chunks)
    spool.start()
    rows = [row for part in PendingRows(writer, spool.progress, PendingRules(names)).walk() for row in part]
    for row in rows[: len(rows) if answer is None else answer]:
        writer.save_attempt(attempt(row.index, f"reply to {row.values['text']}"))
        writer.save_outcome(outcome(row.index, f"answer to {row.values['text']}"))
    spool.progress.stop()
    writer.close("finished")
    return rows


async def _begin(writer: Writer) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(writer.begin, loop, {"lane": 1})


def attempt(index: int, body: str, kind: str | None = None) -> Attempt:
    return Attempt(index, "lane", 1.0, 0.5, kind, 200, body.encode(), None, None, 3, 2)


def outcome(index: int, text: str) -> Outcome:
    answer = json.dumps({"answer": text}).encode()
    return Outcome(index, Status.OK, answer, None, "lane", "model", 1, 0.5, 3, 2, None, None)


def answers(path: Path) -> list[tuple[str, str | None]]:
    """(input text, answer) of every row, in order."""
    reader = RunFileReader(path)
    found = []
    for chunk, outcomes in reader.outcomes():
        for record, one in zip(chunk.records(), outcomes, strict=True):
            found.append(
                (record["text"], None if one is None or one.answer is None else json.loads(one.answer)["answer"])
            )
    reader.close()
    return found


def texts_of(rows: Sequence[Row]) -> list[object]:
    return [row.values["text"] for row in rows]


def test_what_was_saved_is_read_back_in_input_order(path: Path) -> None:
    session(path, chunks_of(["a", "b", "c", "d"]))
    assert answers(path) == [(t, f"answer to {t}") for t in "abcd"]


def test_a_second_start_on_the_same_input_has_nothing_pending(path: Path) -> None:
    session(path, chunks_of(list("abcdefg")))
    assert session(path, chunks_of(list("abcdefg"))) == []


def test_a_start_after_a_part_goes_on_with_the_rest(path: Path) -> None:
    session(path, chunks_of(list("abcdefg")), answer=4)
    assert texts_of(session(path, chunks_of(list("abcdefg")))) == ["e", "f", "g"]


def test_rows_added_at_the_end_are_the_only_ones_pending(path: Path) -> None:
    session(path, chunks_of(list("abcd")))
    assert texts_of(session(path, chunks_of(list("abcdefgh")))) == ["e", "f", "g", "h"]
    assert answers(path) == [(t, f"answer to {t}") for t in "abcdefgh"]


def test_rows_inserted_at_the_top_are_the_only_ones_pending(path: Path) -> None:
    session(path, chunks_of(list("abcdefg")))
    assert texts_of(session(path, chunks_of(["x", "y", *"abcdefg"]))) == ["x", "y"]
    assert answers(path) == [(t, f"answer to {t}") for t in ["x", "y", *"abcdefg"]]


def test_rows_in_another_order_keep_their_answers(path: Path) -> None:
    session(path, chunks_of(list("abcdefg")))
    assert session(path, chunks_of(list("gfedcba"))) == []
    assert answers(path) == [(t, f"answer to {t}") for t in "gfedcba"]


def test_equal_rows_are_matched_one_to_one(path: Path) -> None:
    session(path, chunks_of(["a", "a", "b", "a", "a"]), answer=2)
    assert texts_of(session(path, chunks_of(["z", "a", "a", "b", "a", "a"]), answer=0)) == ["z", "b", "a", "a"]


def test_rows_that_left_the_input_come_back_with_their_answers(path: Path) -> None:
    session(path, chunks_of(list("abcdefgh")))
    assert session(path, chunks_of(list("abc"))) == []
    assert answers(path) == [(t, f"answer to {t}") for t in "abc"]
    assert session(path, chunks_of(list("abcdefgh"))) == []
    assert answers(path) == [(t, f"answer to {t}") for t in "abcdefgh"]


def test_a_row_that_comes_back_is_found_where_only_a_pending_one_stands(path: Path) -> None:
    session(path, chunks_of(list("abc")))
    session(path, chunks_of(list("ab")))
    session(path, chunks_of(list("abxc")), answer=0)
    assert answers(path) == [("a", "answer to a"), ("b", "answer to b"), ("x", None), ("c", "answer to c")]


def test_columns_outside_the_prompt_are_refreshed(path: Path) -> None:
    session(path, chunks_of(list("abcd"), note="old"))
    assert session(path, chunks_of(list("abcd"), note="new")) == []
    reader = RunFileReader(path)
    notes = [record["note"] for chunk in reader.chunks() for record in chunk.records()]
    reader.close()
    assert notes == ["new"] * 4


def test_attempts_move_with_their_rows(path: Path) -> None:
    session(path, chunks_of(list("abc")))
    session(path, chunks_of(list("xabc")))
    reader = RunFileReader(path)
    replies = [[a["reply"] for a in reader.attempts(index)] for index in range(4)]
    reader.close()
    assert replies == [["reply to x"], ["reply to a"], ["reply to b"], ["reply to c"]]


def test_the_last_attempt_of_each_row_is_read_in_order(path: Path) -> None:
    session(path, chunks_of(list("abcd")), answer=0)
    writer = Writer(path)
    for index, body, kind in ((0, "no", "server"), (2, "cut", "server"), (0, "yes", None), (2, "whole", None)):
        writer.save_attempt(attempt(index, body, kind))
    writer.close(None)
    reader = RunFileReader(path)
    found = list(reader.last_attempts(0, 3))
    only = list(reader.last_attempts(1, 1))
    reader.close()
    assert [(index, last.kind, last.body) for index, last in found] == [(0, None, b"yes"), (2, None, b"whole")]
    assert only == []


def test_a_start_without_input_goes_on_from_what_is_stored(path: Path) -> None:
    session(path, chunks_of(list("abcdef")), answer=2)
    assert texts_of(session(path, None)) == ["c", "d", "e", "f"]


def test_indices_with_gaps_are_kept(path: Path) -> None:
    def chosen() -> Iterator[Chunk]:
        yield next(chunks_of(list("abcdefgh"), size=8)).take([1, 4, 6])

    rows = session(path, chosen())
    assert [row.index for row in rows] == [1, 4, 6]
    assert session(path, chosen()) == []


def test_a_sample_that_grows_to_the_whole_input_keeps_its_answers(path: Path) -> None:
    session(path, iter([next(chunks_of(list("abcdefgh"), size=8)).take([1, 4])]))
    assert texts_of(session(path, chunks_of(list("abcdefgh"), size=8))) == ["a", "c", "d", "f", "g", "h"]
    assert answers(path) == [(t, f"answer to {t}") for t in "abcdefgh"]


def test_a_reply_that_was_stored_but_not_read_is_handed_out_with_its_row(path: Path) -> None:
    session(path, chunks_of(list("ab")), answer=0)
    writer = Writer(path)
    writer.save_attempt(attempt(1, "paid for", "unread"))
    writer.close(None)
    rows = session(path, chunks_of(list("ab")), answer=0)
    assert [row.unread and row.unread.body for row in rows] == [None, b"paid for"]


def test_rows_made_pending_again_are_handed_out(path: Path) -> None:
    session(path, chunks_of(list("abc")))
    writer = Writer(path)
    assert writer.do(lambda c: changes.send_again_by_status(c, ["ok"])) == 3
    writer.close(None)
    assert texts_of(session(path, chunks_of(list("abc")), answer=0)) == ["a", "b", "c"]


def test_the_second_writer_is_refused_and_told_who_holds_the_file(path: Path) -> None:
    first, second = RunFileLock(path), RunFileLock(path)
    first.acquire()
    with pytest.raises(LockedError, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_the_second_writer_is_refused_by_another_name_of_the_file_too(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.rowmill"
    link.parent.mkdir()
    link.symlink_to(path)
    with RunFileLock(path), pytest.raises(LockedError, match=f"process {os.getpid()} on "):
        RunFileLock(link).acquire()
    with RunFileLock(link), pytest.raises(LockedError, match=f"process {os.getpid()} on "):
        RunFileLock(path).acquire()
    RunFileLock(path).acquire()


def test_a_run_file_with_two_names_is_refused_for_sqlite_goes_by_the_name(path: Path) -> None:
    path.with_name("hard.rowmill").hardlink_to(path)
    with pytest.raises(OutputError, match=r"has 2 names \(hard links\).*cp "):
        RunFileLock(path).acquire()


def test_a_look_at_who_holds_the_lock_keeps_nobody_from_taking_it(path: Path) -> None:
    look = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_SH)
    lock = RunFileLock(path, pause=lambda seconds: fcntl.flock(look, fcntl.LOCK_UN))
    lock.acquire()
    assert RunFileLock(path).holder() is not None
    lock.release()
    assert RunFileLock(path).holder() is None
    os.close(look)


def test_a_run_file_is_readable_by_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_truncated_run_file_is_refused_and_left_as_it_is(path: Path) -> None:
    session(path, chunks_of([f"text {number}" for number in range(3000)], size=1000))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    before = path.read_bytes()
    with pytest.raises(RunFileError, match=r"damaged.*rowmill export"):
        RunFileReader(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_run_file_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.rowmill"
    stranger.write_text("not a database, but long enough to look at" * 40)
    with pytest.raises(RunFileError, match=r"damaged|not a run file"):
        RunFileReader(stranger)


def test_a_run_file_of_a_newer_format_is_refused(path: Path) -> None:
    connection = connections.writer(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RunFileError, match="newer"):
        RunFileReader(path)


def test_flipped_bytes_in_stored_rows_cost_only_those_rows(path: Path) -> None:
    session(path, chunks_of([f"text {number}" for number in range(9)]))
    connection = connections.writer(path)
    connection.execute("UPDATE chunks SET payload = zeroblob(40) WHERE id = 3")
    connection.close()
    reader = RunFileReader(path)
    read = [record["text"] for chunk, _ in reader.outcomes(salvage=True) for record in chunk.records()]
    assert read == [f"text {number}" for number in (0, 1, 2, 6, 7, 8)]
    assert reader.lost_chunks == 1
    reader.close()


def test_secrets_are_taken_out_of_replies_answers_and_errors(path: Path) -> None:
    secrets = spellings(['sk-"secret"/123'])
    writer = Writer(path, lambda contents: [content and redact(content, secrets) for content in contents])
    echo = json.dumps({"key": 'sk-"secret"/123'})
    writer.save_attempt(Attempt(0, "lane", 1.0, 0.5, None, 200, echo.encode(), 'bad key sk-"secret"/123', None, 1, 1))
    writer.save_outcome(
        Outcome(0, Status.OK, echo.encode(), 'sk-"secret"/123', "lane", "m", 1, 0.1, 1, 1, None, 'sk-"secret"/123')
    )
    writer.close(None)
    assert b"secret" not in path.read_bytes() + b"".join(p.read_bytes() for p in path.parent.glob("*wal"))


def fill_dictionary(path: Path) -> int:
    """Answers so many rows that the dictionary of replies is learned; their number."""
    rows = SAMPLE_BYTES // 1000 + 4
    session(path, chunks_of([f"{number} " + "word " * 200 for number in range(rows)]))
    return rows


def test_answers_are_stored_packed_once_the_dictionary_is_learned(path: Path) -> None:
    rows = fill_dictionary(path)
    more = [f"{number} " + "word " * 200 for number in range(rows + 4)]
    session(path, chunks_of(more))
    connection = connections.reader(path)
    sizes = [size for (size,) in connection.execute("SELECT length(answer) FROM rows WHERE id >= ?", (rows,))]
    connection.close()
    assert max(sizes) < 100
    assert answers(path) == [(text, f"answer to {text}") for text in more]


def test_a_reader_opened_before_the_dictionary_was_learned_reads_packed_answers(path: Path) -> None:
    reader = RunFileReader(path)
    rows = fill_dictionary(path)
    session(path, chunks_of([f"{number} " + "word " * 200 for number in range(rows + 1)]))
    stored = [one.answer for _, outcomes in reader.outcomes() for one in outcomes if one is not None]
    reader.close()
    assert stored[-1] == json.dumps({"answer": f"answer to {rows} " + "word " * 200}).encode()


def test_a_dictionary_that_was_learned_in_a_commit_that_failed_packs_nothing(path: Path) -> None:
    rows = SAMPLE_BYTES // 1000 + 4
    texts = [f"{number} " + "word " * 200 for number in range(rows)]
    session(path, chunks_of(texts), answer=0)
    writer = Writer(path)
    asyncio.run(_begin(writer))
    writer.snapshot = dict  # a commit needs more of it
    for index, text in enumerate(texts):
        writer.save_attempt(attempt(index, f"reply to {text}"))
        writer.save_outcome(outcome(index, f"answer to {text}"))
    assert isinstance(writer.submit(lambda connection: None).exception(), KeyError)
    writer.snapshot = None
    writer.close("finished")
    assert answers(path) == [(text, f"answer to {text}") for text in texts]


def test_an_output_counts_as_written_no_more_also_where_the_first_commit_failed(path: Path) -> None:
    def full_disk(connection: sqlite3.Connection) -> None:
        writer.outdate_output(connection)
        raise OSError("no space is left")

    session(path, chunks_of(list("abc")), answer=0)
    writer = Writer(path)
    writer.do(lambda connection: changes.remember_written(connection, "fingerprint", "{}"))
    writer.close(None)
    writer = Writer(path)
    asyncio.run(_begin(writer))
    writer.save_outcome(outcome(0, "answer"))
    assert isinstance(writer.submit(full_disk).exception(), OSError)
    writer.close("finished")
    reader = RunFileReader(path)
    assert reader.metadata("written") is None
    assert sum(reader.totals().counts.values()) == 1
    reader.close()


def test_a_task_that_fails_is_undone_and_the_rest_of_the_commit_stands(path: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta VALUES ('half', 'done')")
        raise RunFileError("no")

    writer = Writer(path)
    asyncio.run(_begin(writer))
    writer.save_outcome(outcome(0, "answer"))
    with pytest.raises(RunFileError, match="no"):
        writer.do(broken)
    writer.close("finished")
    reader = RunFileReader(path)
    assert reader.metadata("half") is None
    assert sum(reader.totals().counts.values()) == 1
    reader.close()


@pytest.mark.parametrize(("peak_in_flight", "most"), [(20, 1000), (2500, 2500)])
def test_workers_wait_once_as_many_replies_are_uncommitted_as_were_in_flight(
    path: Path, peak_in_flight: int, most: int
) -> None:
    writer = Writer(path)
    asyncio.run(_begin(writer))  # that loop is closed, so nobody hears of commits: all stay uncommitted
    counts = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "latencies": {}, "snapshot": {}}
    writer.snapshot = lambda: {"peak_in_flight": peak_in_flight, **counts}
    writer.do(lambda connection: None)
    for _ in range(most - 1):
        writer.save_attempt(attempt(0, "reply"))
    assert not writer.full()
    writer.save_attempt(attempt(0, "reply"))
    assert writer.full()
    writer.close(None)


@pytest.mark.parametrize(
    "samples", [[], [b"one reply"], [b"alike"] * 40, [b'{"id": %d}' % number for number in range(400)]]
)
def test_whatever_a_dictionary_is_made_of_what_it_packs_is_unpacked_again(samples: list[bytes]) -> None:
    packer = Packer(dictionary_of(samples))
    bodies = [b'{"id": 7, "text": "' + b"word " * 30 + b'"}', b"short", None]
    packed = packer.pack_bodies(bodies)
    assert [None if body is None else packer.unpack_body(how, body) for how, body in packed] == bodies


def test_attempts_that_were_not_the_first_after_all_are_added_behind_those_before(path: Path) -> None:
    session(path, chunks_of(list("abc")), answer=0)
    for number in range(3):
        writer = Writer(path)
        asyncio.run(_begin(writer))
        for index in range(number, 3):
            writer.save_attempt(attempt(index, f"reply {number}").replaced(is_first=True))
        writer.save_attempt(attempt(2, f"again {number}"))
        writer.close("finished")
    reader = RunFileReader(path)
    stored = [[one["reply"] for one in reader.attempts(index)] for index in range(3)]
    reader.close()
    assert stored == [
        ["reply 0"],
        ["reply 0", "reply 1"],
        ["reply 0", "again 0", "reply 1", "again 1", "reply 2", "again 2"],
    ]


@pytest.mark.parametrize("rows", [1, 2, 3, 511, 512, 513, 1100])
def test_commits_of_any_size_hold_each_row_once_and_no_padding(path: Path, rows: int) -> None:
    writer = Writer(path)
    asyncio.run(_begin(writer))
    for index in range(rows):
        writer.save_attempt(attempt(index, f"reply {index}").replaced(is_first=index % 2 == 0))
        writer.save_outcome(outcome(index, f"answer {index}"))
    writer.close("finished")
    connection = connections.reader(path)
    attempts = connection.execute("SELECT id, sent_at FROM attempts ORDER BY id").fetchall()
    outcomes = connection.execute("SELECT id, status FROM rows ORDER BY id").fetchall()
    connection.close()
    assert attempts == [((index << 16) + 1, 1.0) for index in range(rows)]
    assert outcomes == [(index, "ok") for index in range(rows)]


@pytest.mark.parametrize("chunks_taken", [1, 30])
def test_input_is_committed_without_a_pause_while_somebody_waits_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, chunks_taken: int
) -> None:
    monkeypatch.setattr("rowmill.store.writer.COMMIT_INTERVAL_S", 3600.0)
    writer = Writer(path)
    spool = Spool(
        writer,
        SpoolRules(("text",), lambda columns: None),
        chunks_of([f"text {number}" for number in range(90)]),
    )
    spool.start()
    pending = PendingRows(writer, spool.progress, PendingRules(("text",))).walk()
    taken = [row for _ in range(chunks_taken) for row in next(pending)]
    assert [row.index for row in taken] == list(range(3 * chunks_taken))
    spool.join(60.0)  # more chunks than may be uncommitted are left, and the spool waits for those
    assert spool.progress.rows == 90
    pending.close()  # type: ignore[attr-defined]
    writer.close(None)


def test_a_damaged_answer_is_told_by_its_row(path: Path) -> None:
    rows = fill_dictionary(path)
    session(path, chunks_of([f"{number} " + "word " * 200 for number in range(rows + 4)]))
    connection = connections.writer(path)
    connection.execute("UPDATE rows SET answer = substr(answer, 1, length(answer) - 2) WHERE id = ?", (rows + 2,))
    connection.close()
    reader = RunFileReader(path)
    with pytest.raises(RunFileError, match=rf"answer of row {rows + 2} of the run file is damaged"):
        list(reader.outcomes())
    reader.close()


def test_a_reader_opened_before_the_dictionary_was_learned_shows_packed_replies(path: Path) -> None:
    reader = RunFileReader(path)
    rows = fill_dictionary(path)
    texts = [f"{number} " + "word " * 200 for number in range(rows + 1)]
    session(path, chunks_of(texts))
    assert [one["reply"] for one in reader.attempts(rows)] == [f"reply to {texts[rows]}"]
    assert reader.replies(rows, rows)[rows][1].body == f"reply to {texts[rows]}".encode()
    reader.close()
