"""What every sink promises, asked of all formats with the same rows."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rowmill.core.rows.chunks import ObjectChunk, TableChunk
from rowmill.core.rows.outputs import AnswerColumn, Batch, OutputColumns, failure_record
from rowmill.errors import OutputError
from rowmill.io.sinks import FORMATS, OutputShape, check_writable, create_sink, format_of
from rowmill.io.sinks.atomic import AtomicFile
from rowmill.io.sinks.jsonl import JsonLinesFile
from rowmill.io.sources import open_source
from rowmill.ports import Chunk, Sink
from rowmill.records import Outcome, Status

COLUMNS = OutputColumns(("id", "text"), (AnswerColumn("label", "string"), AnswerColumn("score", "number")))
TEXTS = ["→ 馬 😀", ' "x", y ', "a\r", "\n", "", "=1+1", "NULL", "\u2028"]


def chunk(start: int = 0) -> TableChunk:
    cells = [[f"{number:03d}", text] for number, text in enumerate(TEXTS)]
    return TableChunk(range(start, start + len(TEXTS)), ("id", "text"), cells)


def outcome(index: int, good: bool = True) -> Outcome:
    status = Status.OK if good else Status.FAILED
    answer = b'{"label":"\xe2\x86\x92","score":0.1}' if good else None
    return Outcome(index, status, answer, None if good else "no reply", "e", "m", 1, 0.25, 10, None, 1e-06, None)


def batch(start: int = 0, good: bool = True) -> Batch:
    rows = chunk(start)
    return Batch(rows, [outcome(index, good) for index in rows.indices], COLUMNS)


def open_sink(path: Path, format: str, chunks: list[Chunk] | None = None, **options: Any) -> Sink:
    shape = OutputShape(format, **options)
    return create_sink(str(path), shape, COLUMNS, lambda: [chunk()] if chunks is None else chunks)


def read(path: Path, format: str) -> list[dict[str, Any]]:
    if format == "parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    content = path.read_bytes().decode("utf-8")
    if format == "jsonl":
        return [json.loads(line) for line in content.split("\n")[:-1]]
    delimiter = "\t" if format == "tsv" else ","
    return list(csv.DictReader(io.StringIO(content, newline=""), delimiter=delimiter))


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back_in_order_with_their_texts_unchanged(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out"
    sink = open_sink(path, format)
    sink.write(batch())
    sink.write(batch(8))
    sink.commit()
    rows = read(path, format)
    assert [row["text"] for row in rows] == TEXTS * 2
    assert [row["id"] for row in rows] == [f"{number:03d}" for number in range(8)] * 2
    assert {row["label"] for row in rows} == {"→"}
    assert [float(row["score"]) for row in rows] == [0.1] * 16
    assert [int(row["_row"]) for row in rows] == list(range(16))
    assert list(rows[0]) == list(COLUMNS.names)


def test_json_lines_take_any_name_and_any_text(tmp_path: Path) -> None:
    for number, name in enumerate(['say "it"', "back\\slash", "tab\t", "ok"]):
        columns = OutputColumns((name,), (AnswerColumn("label", "string"),))
        sink = create_sink(str(tmp_path / f"{number}"), OutputShape("jsonl"), columns, list)
        sink.write(
            Batch(TableChunk(range(2), (name,), [["whole"], ["half \ud83d"]]), [outcome(0), outcome(1)], columns)
        )
        sink.commit()
        assert [row[name] for row in read(tmp_path / f"{number}", "jsonl")] == ["whole", "half ?"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_output_without_rows_is_valid(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out"
    open_sink(path, format, []).commit()
    assert read(path, format) == []
    if format == "parquet":
        assert pq.read_schema(path).names == list(COLUMNS.names)
    elif format != "jsonl":
        assert path.read_text().startswith("id")


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_there_under_the_final_name_before_commit(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out.x"
    sink = open_sink(path, format)
    sink.write(batch())
    (temporary,) = tmp_path.iterdir()
    assert temporary.name.startswith(".out.x")
    assert str(os.getpid()) in temporary.name
    sink.commit()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("format", FORMATS)
def test_abort_leaves_what_was_there(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    sink = open_sink(path, format)
    sink.write(batch())
    sink.abort()
    sink.abort()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "before"


@pytest.mark.parametrize("format", FORMATS)
def test_commit_replaces_what_was_there_and_follows_a_link(tmp_path: Path, format: str) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    sink = open_sink(link, format)
    sink.commit()
    assert link.is_symlink()
    assert read(target, format) == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_thousand_successes_and_then_an_error_have_one_schema(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out"
    sink = open_sink(path, format)
    for number in range(125):
        sink.write(batch(8 * number))
    sink.write(batch(1_000, good=False))
    sink.commit()
    rows = read(path, format)
    assert [row["_status"] for row in rows] == ["ok"] * 1_000 + ["failed"] * 8
    assert rows[-1]["_error"] == "no reply"
    assert rows[-1]["label"] in (None, "")


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_folder_is_refused_before_anything_is_made(tmp_path: Path, format: str) -> None:
    with pytest.raises(OutputError, match="no folder"):
        open_sink(tmp_path / "nowhere" / "out", format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_clashing_names_are_refused_before_anything_is_made(tmp_path: Path, format: str) -> None:
    columns = OutputColumns(("label",), COLUMNS.answer)
    with pytest.raises(OutputError, match="--answer-prefix"):
        create_sink(str(tmp_path / "out"), OutputShape(format), columns, list)
    assert list(tmp_path.iterdir()) == []


def test_failed_rows_read_back_as_the_rows_they_were(tmp_path: Path) -> None:
    file = JsonLinesFile(str(tmp_path / "out.failed.jsonl"))
    for record, row in zip(chunk().records(), range(8), strict=True):
        file.append([failure_record(record, outcome(row, good=False), "raw")])
    file.commit()
    (again,) = open_source(str(tmp_path / "out.failed.jsonl")).chunks()
    assert list(again.records()) == list(chunk().records())


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(str(tmp_path))
    with pytest.raises(OutputError, match="no regular file"):
        check_writable("/dev/null")


def test_asking_whether_a_path_is_writable_makes_nothing(tmp_path: Path) -> None:
    check_writable(str(tmp_path / "out.csv"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(OutputError, match="no permission"):
        check_writable(str(tmp_path / "out.csv"))


@pytest.mark.parametrize(
    ("path", "format"), [("a.jsonl", "jsonl"), ("b.CSV", "csv"), ("c.x.tsv", "tsv"), ("d.parquet", "parquet")]
)
def test_the_ending_names_the_format(path: str, format: str) -> None:
    assert format_of(path) == format


@pytest.mark.parametrize("path", ["a.xlsx", "a", "a.json", "a.csv.gz"])
def test_an_unknown_ending_is_refused_with_those_there_are(path: str) -> None:
    with pytest.raises(OutputError, match=r"\.jsonl \.csv \.tsv \.parquet"):
        format_of(path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="known are jsonl csv tsv parquet"):
        open_sink(tmp_path / "out", "xml")


def test_objects_keep_their_own_keys_in_json_lines(tmp_path: Path) -> None:
    rows = ObjectChunk(range(2), [{"id": 2**70, "text": {"b": [1.0], "a": None}}, {"text": "x"}])
    sink = open_sink(tmp_path / "out", "jsonl", [rows])
    sink.write(Batch(rows, [outcome(0), outcome(1)], COLUMNS))
    sink.commit()
    first, second = (tmp_path / "out").read_text().splitlines()
    assert first.startswith('{"id":1180591620717411303424,"text":{"b":[1.0],"a":null},"label":"→","score":0.1,')
    assert second.startswith('{"text":"x","label":')


def test_what_a_killed_process_left_half_written_is_taken_away(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    leftover = tmp_path / f".out.jsonl.{dead.pid}.tmp"
    leftover.write_text("half")
    other = tmp_path / ".other.jsonl.1.tmp"
    other.write_text("not ours")
    AtomicFile(str(tmp_path / "out.jsonl")).abort()
    assert not leftover.exists()
    assert other.exists()
