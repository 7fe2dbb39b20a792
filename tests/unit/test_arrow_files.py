"""Arrow files, Arrow streams and folders that hold them."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from rowmill.core.rows.chunks import ArrowChunk
from rowmill.errors import SourceError
from rowmill.io.sources import open_source

TABLE = pa.table(
    {
        "n": pa.array([2**63 - 1, None, 3]),
        "when": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "items": pa.array([[1], [], None]),
    }
)


def write_stream(path: Path, table: pa.Table, rows_per_batch: int = 1_000) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
    return str(path)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_types_and_values_are_kept(tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, str(tmp_path / "in.feather"), compression=compression)
    source = open_source(str(tmp_path / "in.feather"))
    (chunk,) = source.chunks()
    assert isinstance(chunk, ArrowChunk)
    assert pa.Table.from_batches([chunk.batch]).equals(TABLE)
    assert source.size_hint() == 3


def test_small_batches_share_chunks_and_large_ones_are_cut(tmp_path: Path) -> None:
    table = pa.table({"n": range(3_500), "kind": pa.array(["x", "y"] * 1_750).dictionary_encode()})
    for rows_per_batch in (7, 3_000):
        source = open_source(write_stream(tmp_path / "in.arrow", table, rows_per_batch))
        assert [len(chunk) for chunk in source.chunks()] == [1_000, 1_000, 1_000, 500]
        assert [row["n"] for chunk in source.chunks() for row in chunk.records()] == list(range(3_500))


def test_long_rows_make_chunks_of_fewer(tmp_path: Path) -> None:
    texts = [chr(97 + number) * 1_000_000 for number in range(10)]
    chunks = list(open_source(write_stream(tmp_path / "in.arrow", pa.table({"a": texts}), 10)).chunks())
    assert max(map(len, chunks)) <= 5
    assert [row["a"] for chunk in chunks for row in chunk.records()] == texts


def test_a_stream_that_is_cut_short_is_an_error_after_the_rows_before_it(tmp_path: Path) -> None:
    path = write_stream(tmp_path / "in.arrow", pa.table({"n": range(5_000)}))
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) * 3 // 4])
    seen: list[int] = []

    def read_all() -> None:
        for chunk in open_source(path).chunks():
            seen.append(len(chunk))

    with pytest.raises(SourceError, match="cannot be read: Expected to be able to read"):
        read_all()
    assert seen == [1_000] * 3


@pytest.mark.parametrize("content", [b"", b"id,text\n1,x\n", b"ARROW1\0\0", b"FEA1\0\0\0\0"])
def test_what_is_no_arrow_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.arrow").write_bytes(content)
    with pytest.raises(SourceError, match=r"Arrow file|Feather"):
        open_source(str(tmp_path / "in.arrow")).columns()


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SourceError, match="more than one column named 'a'"):
        open_source(write_stream(tmp_path / "in.arrow", table)).columns()


def test_a_saved_data_set_is_read_in_order_without_its_own_library(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"n": list(range(2_500))}).save_to_disk(tmp_path / "saved", num_shards=3)
    source = open_source(str(tmp_path / "saved"))
    assert source.columns() == ("n",)
    assert [row["n"] for chunk in source.chunks() for row in chunk.records()] == list(range(2_500))


def test_several_saved_splits_are_refused_naming_one(tmp_path: Path) -> None:
    one = datasets.Dataset.from_dict({"n": [1]})
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match=r"several splits: name one, for example .*saved/train"):
        open_source(str(tmp_path / "saved"))
    assert open_source(str(tmp_path / "saved" / "test")).columns() == ("n",)


@pytest.mark.parametrize("state", ["{", "[]", "{}", json.dumps({"_data_files": []})])
def test_a_damaged_saved_data_set_is_refused(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(SourceError, match="data set"):
        open_source(str(tmp_path))
