"""Inputs and outputs elsewhere, end to end: an object store, web pages, connections that break."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.elsewhere import WebPages, serving
from tests.frail import Frail
from tests.workplace import Workplace, own_tokens

import rowmill

if TYPE_CHECKING:
    from tests.elsewhere import Bucket


@pytest.fixture(autouse=True)
def in_folder(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)


@pytest.fixture
def pages() -> Iterator[WebPages]:
    with serving(WebPages()) as found:
        yield found


def run(place: Workplace, source: str, output: str | None = None, **options: Any) -> rowmill.Result:
    """As the command line would in the workplace's folder, in this process, which has loaded the clients already."""
    usual = {"prompt": "Say it: {{ text }}", "model": "sim", "url": place.simulator.url, "in_flight": 50}
    return rowmill.run(source, output=output, **{**usual, **options})


def rows_of(first: int, number: int) -> bytes:
    return b"".join(b'{"id": "%d", "text": "[[row-%d]]"}\n' % (n, n) for n in range(first, first + number))


def test_a_glob_of_packed_objects_becomes_an_object_and_the_run_file_stays_here(
    place: Workplace, bucket: Bucket
) -> None:
    source, output = bucket.address("in/*.jsonl.gz"), bucket.address("out/labels.parquet")
    bucket.put("in/a.jsonl.gz", gzip.compress(rows_of(0, 30)))
    bucket.put("in/b.jsonl.gz", gzip.compress(rows_of(30, 30)))
    ended = place.run("-o", output, source=source)
    assert ended.code == 0, ended.err
    rows = pq.read_table(io.BytesIO(bucket.get("out/labels.parquet"))).to_pylist()
    assert len(rows) == 60
    assert own_tokens(rows)
    (run_file,) = place.folder.glob("*.rowmill")
    assert f"the run file of {output} is here: {run_file.name}" in ended.err
    assert bucket.keys() == ["in/a.jsonl.gz", "in/b.jsonl.gz", "out/labels.parquet"]
    assert b"only-for-tests" not in run_file.read_bytes()
    assert run(place, source, output).exit_code == 0
    assert place.request_total() == 60


def test_failed_rows_go_beside_the_output_and_go_when_none_is_left(place: Workplace, bucket: Bucket) -> None:
    output = bucket.address("out.csv")
    place.write("in.jsonl", rows_of(0, 3) + b"{\n")
    ended = run(place, "in.jsonl", output)
    assert (ended.exit_code, ended.failures) == (3, f"{output}.failed.jsonl")
    assert json.loads(bucket.get("out.csv.failed.jsonl"))["_rowmill"]["row"] == 3
    place.write("in.jsonl", rows_of(0, 4))
    assert run(place, "in.jsonl", output).exit_code == 0
    assert bucket.keys() == ["out.csv"]


def test_beginning_anew_renames_the_output_where_it_is(place: Workplace, bucket: Bucket) -> None:
    place.write_rows(2)
    for _ in range(3):
        assert run(place, "in.csv", bucket.address("out.csv"), fresh=True).exit_code == 0
    assert bucket.keys() == ["out.csv", "out.csv.old", "out.csv.old2"]
    assert len(list(place.folder.glob("*.rowmill.old*"))) >= 2


def test_status_retry_and_export_find_the_run_file_by_the_outputs_address(place: Workplace, bucket: Bucket) -> None:
    output = bucket.address("out.csv")
    place.write("in.jsonl", rows_of(0, 25) + b"{\n")
    assert run(place, "in.jsonl", output).exit_code == 3
    status = place.rowmill("status", output, "--json").json()
    assert (status["state"], status["counts"]) == ("finished", {"ok": 25, "failed": 1})
    (run_file,) = place.folder.glob("*.rowmill")
    assert place.rowmill("retry", run_file.name).code == 3
    assert list(place.folder.glob("out*")) == [run_file]
    parts = bucket.address("lake/labels")
    ended = place.rowmill("export", output, "-o", parts, "--format", "csv", "--split-rows", "10")
    assert ended.code == 0, ended.err
    assert bucket.keys()[:3] == [f"lake/labels/part-0000{number}.csv" for number in range(3)]


def test_an_output_elsewhere_that_has_no_run_file_is_not_overwritten(place: Workplace, bucket: Bucket) -> None:
    output = bucket.put("out.jsonl", b"precious")
    place.write_rows(1)
    with pytest.raises(rowmill.OutputError, match="is not overwritten"):
        run(place, "in.csv", output)
    assert bucket.get("out.jsonl") == b"precious"


@pytest.mark.parametrize("split_rows", [None, 2])
def test_an_output_that_cannot_be_put_stops_the_run_resumable(place: Workplace, split_rows: int | None) -> None:
    frail = Frail.renewed()
    place.write_rows(5)
    frail.takes = 0
    ended = run(place, "in.csv", "frail://folder/out.csv", split_rows=split_rows)
    assert (ended.exit_code, ended.output, ended.counts) == (4, None, {"ok": 5})
    assert "the line is dead" in ended.message
    assert "every row is answered" in ended.message
    frail.takes = 10
    ended = run(place, "in.csv", "frail://folder/out.csv", split_rows=split_rows)
    assert (ended.exit_code, ended.output) == (0, "frail://folder/out.csv")
    assert place.request_total() == 5


def test_a_connection_that_breaks_in_mid_read_is_told_and_resumed(place: Workplace, pages: WebPages) -> None:
    padding = "x" * 10_000
    content = "".join(f"{n},[[row-{n}]] {padding}\n" for n in range(1_200))
    pages.pages["/in.csv"] = b"id,text\n" + content.encode()
    pages.breaks_at = 9_000_000
    source = f"{pages.url}/in.csv"
    broken = run(place, source, "out.jsonl", prompt="{{ text[:14] }}")
    assert broken.exit_code == 4
    assert f"{source} cannot be read: " in broken.message
    before = place.request_total()
    assert 400 < before < 1_000
    pages.breaks_at = None
    assert run(place, source, "out.jsonl", prompt="{{ text[:14] }}").exit_code == 0
    assert own_tokens(place.output())
    assert place.request_total() == 1_200


def test_a_page_that_is_not_there_is_refused_before_anything_is_made(place: Workplace, pages: WebPages) -> None:
    refused = place.run(source=f"{pages.url}/none.csv")
    assert refused.code == 2
    assert "there is no such file" in refused.err
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("where", ["source", "output"])
def test_an_address_that_holds_a_key_is_refused_without_showing_it(place: Workplace, where: str) -> None:
    place.write_rows(1)
    address = "https://host/in.csv?X-Amz-Signature=hush" if where == "source" else "sftp://me:hush@host/out.csv"
    with pytest.raises(rowmill.JobError, match="must not hold") as refused:
        run(place, address if where == "source" else "in.csv", address if where == "output" else "out.csv")
    assert "hush" not in str(refused.value)


def test_the_output_of_a_page_goes_into_the_current_folder(place: Workplace, pages: WebPages) -> None:
    pages.pages["/data/reviews.jsonl"] = rows_of(0, 3)
    assert run(place, f"{pages.url}/data/reviews.jsonl").output == "reviews.out.jsonl"
    assert own_tokens(place.output("reviews.out.jsonl"))


def test_a_file_scheme_names_a_path(place: Workplace) -> None:
    place.write_rows(2)
    assert run(place, f"file://{place.folder}/in.csv", f"file://{place.folder}/out.jsonl").exit_code == 0
    assert own_tokens(place.output())


def test_a_run_file_elsewhere_is_refused(place: Workplace) -> None:
    place.write_rows(1)
    with pytest.raises(rowmill.JobError, match="must be on this machine"):
        run(place, "in.csv", "out.csv", run_file="s3://bucket/out.rowmill")
