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
def in_folder(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace.folder)


@pytest.fixture
def pages() -> Iterator[WebPages]:
    with serving(WebPages()) as found:
        yield found


def run(workplace: Workplace, source: str, output: str | None = None, **options: Any) -> rowmill.Result:
    """As the command line would in the workplace's folder, in this process, which has loaded the clients already."""
    usual = {"prompt": "Say it: {{ text }}", "model": "sim", "url": workplace.simulator.url, "in_flight": 50}
    return rowmill.run(source, output=output, **{**usual, **options})


def rows_of(first: int, number: int) -> bytes:
    return b"".join(b'{"id": "%d", "text": "[[row-%d]]"}\n' % (n, n) for n in range(first, first + number))


def test_a_glob_of_packed_objects_becomes_an_object_and_the_run_file_stays_here(
    workplace: Workplace, bucket: Bucket
) -> None:
    source, output = bucket.url("in/*.jsonl.gz"), bucket.url("out/labels.parquet")
    bucket.put("in/a.jsonl.gz", gzip.compress(rows_of(0, 30)))
    bucket.put("in/b.jsonl.gz", gzip.compress(rows_of(30, 30)))
    ended = workplace.run("-o", output, source=source)
    assert ended.code == 0, ended.err
    rows = pq.read_table(io.BytesIO(bucket.get("out/labels.parquet"))).to_pylist()
    assert len(rows) == 60
    assert own_tokens(rows)
    (run_file,) = workplace.folder.glob("*.rowmill")
    assert f"the run file of {output} is here: {run_file.name}" in ended.err
    assert bucket.keys() == ["in/a.jsonl.gz", "in/b.jsonl.gz", "out/labels.parquet"]
    assert b"only-for-tests" not in run_file.read_bytes()
    assert run(workplace, source, output).exit_code == 0
    assert workplace.request_total() == 60


def test_failed_rows_go_beside_the_output_and_go_when_none_is_left(workplace: Workplace, bucket: Bucket) -> None:
    output = bucket.url("out.csv")
    workplace.write("in.jsonl", rows_of(0, 3) + b"{\n")
    ended = run(workplace, "in.jsonl", output)
    assert (ended.exit_code, ended.failures) == (3, f"{output}.failed.jsonl")
    assert json.loads(bucket.get("out.csv.failed.jsonl"))["_rowmill"]["row"] == 3
    workplace.write("in.jsonl", rows_of(0, 4))
    assert run(workplace, "in.jsonl", output).exit_code == 0
    assert bucket.keys() == ["out.csv"]


def test_beginning_anew_renames_the_output_where_it_is(workplace: Workplace, bucket: Bucket) -> None:
    workplace.write_rows(2)
    for _ in range(3):
        assert run(workplace, "in.csv", bucket.url("out.csv"), fresh=True).exit_code == 0
    assert bucket.keys() == ["out.csv", "out.csv.old", "out.csv.old2"]
    assert len(list(workplace.folder.glob("*.rowmill.old*"))) >= 2


def test_status_retry_and_export_find_the_run_file_by_the_outputs_address(workplace: Workplace, bucket: Bucket) -> None:
    output = bucket.url("out.csv")
    workplace.write("in.jsonl", rows_of(0, 25) + b"{\n")
    assert run(workplace, "in.jsonl", output).exit_code == 3
    status = workplace.rowmill("status", output, "--json").json()
    assert (status["state"], status["counts"]) == ("finished", {"ok": 25, "failed": 1})
    (run_file,) = workplace.folder.glob("*.rowmill")
    assert workplace.rowmill("retry", run_file.name).code == 3
    assert list(workplace.folder.glob("out*")) == [run_file]
    parts = bucket.url("lake/labels")
    ended = workplace.rowmill("export", output, "-o", parts, "--format", "csv", "--split-rows", "10")
    assert ended.code == 0, ended.err
    assert bucket.keys()[:3] == [f"lake/labels/part-0000{number}.csv" for number in range(3)]


def test_an_output_elsewhere_that_has_no_run_file_is_not_overwritten(workplace: Workplace, bucket: Bucket) -> None:
    output = bucket.put("out.jsonl", b"precious")
    workplace.write_rows(1)
    with pytest.raises(rowmill.OutputError, match="is not overwritten"):
        run(workplace, "in.csv", output)
    assert bucket.get("out.jsonl") == b"precious"


@pytest.mark.parametrize("split_rows", [None, 2])
def test_an_output_that_cannot_be_put_stops_the_run_resumable(workplace: Workplace, split_rows: int | None) -> None:
    frail = Frail.renewed()
    workplace.write_rows(5)
    frail.takes = 0
    ended = run(workplace, "in.csv", "frail://folder/out.csv", split_rows=split_rows)
    assert (ended.exit_code, ended.output, ended.counts) == (4, None, {"ok": 5})
    assert "the line is dead" in ended.message
    assert "every row is answered" in ended.message
    frail.takes = 10
    ended = run(workplace, "in.csv", "frail://folder/out.csv", split_rows=split_rows)
    assert (ended.exit_code, ended.output) == (0, "frail://folder/out.csv")
    assert workplace.request_total() == 5


def test_a_connection_that_breaks_in_mid_read_is_told_and_resumed(workplace: Workplace, pages: WebPages) -> None:
    padding = "x" * 10_000
    content = "".join(f"{n},[[row-{n}]] {padding}\n" for n in range(1_200))
    pages.pages["/in.csv"] = b"id,text\n" + content.encode()
    pages.breaks_at = 9_000_000
    source = f"{pages.url}/in.csv"
    broken = run(workplace, source, "out.jsonl", prompt="{{ text[:14] }}")
    assert broken.exit_code == 4
    assert f"{source} cannot be read: " in broken.message
    before = workplace.request_total()
    assert 400 < before < 1_000
    pages.breaks_at = None
    assert run(workplace, source, "out.jsonl", prompt="{{ text[:14] }}").exit_code == 0
    assert own_tokens(workplace.output())
    assert workplace.request_total() == 1_200


def test_a_page_that_is_not_there_is_refused_before_anything_is_made(workplace: Workplace, pages: WebPages) -> None:
    refused = workplace.run(source=f"{pages.url}/none.csv")
    assert refused.code == 2
    assert "there is no such file" in refused.err
    assert list(workplace.folder.iterdir()) == []


@pytest.mark.parametrize("where", ["source", "output"])
def test_a_url_that_holds_a_key_is_refused_without_showing_it(workplace: Workplace, where: str) -> None:
    workplace.write_rows(1)
    url = "https://host/in.csv?X-Amz-Signature=hush" if where == "source" else "sftp://me:hush@host/out.csv"
    with pytest.raises(rowmill.JobError, match="must not hold") as refused:
        run(workplace, url if where == "source" else "in.csv", url if where == "output" else "out.csv")
    assert "hush" not in str(refused.value)


def test_the_output_of_a_page_goes_into_the_current_folder(workplace: Workplace, pages: WebPages) -> None:
    pages.pages["/data/reviews.jsonl"] = rows_of(0, 3)
    assert run(workplace, f"{pages.url}/data/reviews.jsonl").output == "reviews.out.jsonl"
    assert own_tokens(workplace.output("reviews.out.jsonl"))


def test_a_file_scheme_names_a_path(workplace: Workplace) -> None:
    workplace.write_rows(2)
    assert run(workplace, f"file://{workplace.folder}/in.csv", f"file://{workplace.folder}/out.jsonl").exit_code == 0
    assert own_tokens(workplace.output())


def test_a_run_file_elsewhere_is_refused(workplace: Workplace) -> None:
    workplace.write_rows(1)
    with pytest.raises(rowmill.JobError, match="must be on this machine"):
        run(workplace, "in.csv", "out.csv", run_file="s3://bucket/out.rowmill")
