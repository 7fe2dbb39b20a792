"""What every sink promises of outputs elsewhere and of outputs in parts."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.contract.test_sinks import COLUMNS, TEXTS, batch, chunk
from tests.frail import Frail

from rowmill.errors import OutputError
from rowmill.io import files
from rowmill.io.files import remote
from rowmill.io.sinks import FORMATS, OutputShape, check_writable, create_sink
from rowmill.io.sources import open_source
from rowmill.ports import Chunk, Sink

if TYPE_CHECKING:
    from tests.elsewhere import Bucket


@pytest.fixture
def frail() -> type[Frail]:
    return Frail.renewed()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which outputs for elsewhere are made."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=["s3", "frail", "folder"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where outputs go: an object store, another file system, a folder of this machine."""
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        return bucket.url("some/folder")
    if request.param == "frail":
        request.getfixturevalue("frail")
        return "frail://some/folder"
    (tmp_path / "home").mkdir()
    return str(tmp_path / "home")


def opened(path: str, format: str, split_rows: int | None = None, chunks: list[Chunk] | None = None) -> Sink:
    shape = OutputShape(format, split_rows=split_rows, rows=16)
    return create_sink(path, shape, COLUMNS, lambda: [chunk()] if chunks is None else chunks)


def written(path: str, format: str, split_rows: int | None = None) -> str:
    sink = opened(path, format, split_rows)
    sink.write(batch())
    sink.write(batch(8))
    sink.commit()
    return path


def texts(spec: str) -> list[Any]:
    return [row["text"] for part in open_source(spec).chunks() for row in part.records()]


def names(path: str) -> list[str]:
    """What a folder here or elsewhere holds."""
    if "://" in path:
        return remote.names_in(path) if files.is_folder(path) else []
    return sorted(entry.name for entry in Path(path).iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back_and_nothing_else_is_left(home: str, here: Path, format: str) -> None:
    written(f"{home}/out.{format}", format)
    assert texts(f"{home}/out.{format}") == TEXTS * 2
    assert names(home) == [f"out.{format}"]
    assert list(here.iterdir()) == []


def test_nothing_is_there_before_commit_and_after_abort(home: str, here: Path) -> None:
    sink = opened(f"{home}/out.csv", "csv")
    sink.write(batch())
    assert not files.exists(f"{home}/out.csv")
    sink.abort()
    sink.abort()
    assert names(home) == []
    assert list(here.iterdir()) == []


def test_commit_replaces_what_was_there(home: str) -> None:
    opened(f"{home}/out.csv", "csv").commit()
    before = files.stamp(f"{home}/out.csv")
    written(f"{home}/out.csv", "csv")
    assert texts(f"{home}/out.csv") == TEXTS * 2
    assert files.stamp(f"{home}/out.csv") != before


def test_an_upload_that_fails_leaves_what_was_there_and_shows_no_signed_url(frail: type[Frail], here: Path) -> None:
    opened("frail://folder/out.csv", "csv").commit()
    frail.takes = 0
    sink = opened("frail://folder/out.csv", "csv")
    sink.write(batch())
    with pytest.raises(OutputError, match=r"out\.csv cannot be written: the line is dead; see https://help$"):
        sink.commit()
    assert texts("frail://folder/out.csv") == []
    assert names("frail://folder") == ["out.csv"]
    assert list(here.iterdir()) == []


def test_a_bucket_that_has_gone_is_told_and_nothing_is_left(bucket: Bucket, here: Path) -> None:
    sink = opened(bucket.url("out.csv"), "csv")
    sink.write(batch())
    bucket.close_to_all()
    with pytest.raises(OutputError, match=r"cannot be written: .*The specified bucket does not exist"):
        sink.commit()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://no-such-bucket/out.csv", "there is no bucket no-such-bucket"),
        ("s3://no-such-bucket", "it names a bucket and no file in it"),
        ("https://host/out.csv", "a web page can be read and not written"),
        ("nope://host/out.csv", "no kind of URL that fsspec knows"),
    ],
)
def test_where_nothing_can_be_put_is_refused_before_anything_is_made(
    bucket: Bucket, here: Path, url: str, reason: str
) -> None:
    with pytest.raises(OutputError, match=reason):
        opened(url, "csv")
    assert list(here.iterdir()) == []


# In parts


@pytest.mark.parametrize("format", FORMATS)
def test_parts_have_the_asked_number_of_rows_in_order(home: str, here: Path, format: str) -> None:
    written(f"{home}/out", format, split_rows=6)
    assert names(home) == ["out"]
    assert names(f"{home}/out") == [f"part-0000{number}.{format}" for number in range(3)]
    parts = [texts(f"{home}/out/part-0000{number}.{format}") for number in range(3)]
    assert [len(part) for part in parts] == [6, 6, 4]
    assert [text for part in parts for text in part] == TEXTS * 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_an_output_without_rows_has_one_part(home: str, format: str) -> None:
    opened(f"{home}/out.{format}", format, split_rows=5, chunks=[]).commit()
    assert names(f"{home}/out.{format}") == [f"part-00000.{format}"]
    assert texts(f"{home}/out.{format}/part-00000.{format}") == []


def test_rows_that_fill_their_parts_leave_no_empty_one(home: str) -> None:
    written(f"{home}/out", "csv", split_rows=8)
    assert names(f"{home}/out") == ["part-00000.csv", "part-00001.csv"]


def test_no_part_is_there_before_commit_and_after_abort(home: str, here: Path) -> None:
    sink = opened(f"{home}/out", "parquet", split_rows=3)
    sink.write(batch())
    assert not files.exists(f"{home}/out")
    sink.abort()
    sink.abort()
    assert names(home) == []
    assert list(here.iterdir()) == []


def test_new_parts_replace_all_old_ones(home: str) -> None:
    written(f"{home}/out", "csv", split_rows=2)
    written(f"{home}/out", "csv", split_rows=9)
    assert names(f"{home}/out") == ["part-00000.csv", "part-00001.csv"]
    assert names(home) == ["out"]
    assert texts(f"{home}/out/*") == TEXTS * 2


def test_parts_replace_a_file_of_that_name(tmp_path: Path) -> None:
    path = written(str(tmp_path / "out.csv"), "csv")
    written(path, "csv", split_rows=9)
    assert names(path) == ["part-00000.csv", "part-00001.csv"]


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.doc").write_text("mine")
    with pytest.raises(OutputError, match=r"holds something else than parts \(thesis.doc\)"):
        opened(str(tmp_path / "out"), "csv", split_rows=3)


def test_parts_in_place_of_a_file_have_to_be_asked_for(home: str) -> None:
    written(f"{home}/out.csv", "csv", split_rows=9)
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(f"{home}/out.csv")
    check_writable(f"{home}/out.csv", in_parts=True)


def test_parts_that_a_killed_process_left_are_taken_away(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f".out.{dead.pid}.tmp", f".out.{dead.pid}.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-00000.csv").write_text("half")
    written(str(tmp_path / "out"), "csv", split_rows=9)
    assert sorted(names(str(tmp_path))) == ["here", "out"]


def test_the_types_of_all_parts_are_read_from_the_input_once(tmp_path: Path) -> None:
    reads: list[int] = []

    def chunks() -> list[Chunk]:
        reads.append(1)
        return [chunk()]

    sink = create_sink(str(tmp_path / "out"), OutputShape("parquet", split_rows=2, rows=8), COLUMNS, chunks)
    sink.write(batch())
    sink.commit()
    assert reads == [1]
    schemas = [pq.read_schema(path) for path in sorted((tmp_path / "out").iterdir())]
    assert schemas == [schemas[0]] * 4


def test_names_of_very_many_parts_keep_the_order_of_rows(tmp_path: Path) -> None:
    shape = OutputShape("csv", split_rows=1, rows=1_000_000)
    create_sink(str(tmp_path / "out"), shape, COLUMNS, list).commit()
    assert names(str(tmp_path / "out")) == ["part-0000000.csv"]


def test_parts_that_cannot_all_be_sent_are_taken_back(frail: type[Frail], here: Path) -> None:
    frail.takes = 2
    sink = opened("frail://folder/out", "csv", split_rows=3)
    sink.write(batch())
    with pytest.raises(OutputError, match="the line is dead"):
        sink.commit()
    assert names("frail://folder/out") == []
    assert list(here.iterdir()) == []


def test_parts_are_read_as_one_table_by_others(tmp_path: Path) -> None:
    path = written(str(tmp_path / "out.parquet"), "parquet", split_rows=5)
    assert pq.read_table(path)["text"].to_pylist() == TEXTS * 2


def test_what_comes_back_from_an_object_store_is_what_another_client_sees(bucket: Bucket) -> None:
    written(bucket.url("a/out.parquet"), "parquet")
    assert pq.read_table(io.BytesIO(bucket.get("a/out.parquet")))["text"].to_pylist() == TEXTS * 2
    assert bucket.keys() == ["a/out.parquet"]
