"""Opening sources: names, globs, compression, encodings."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from rowmill.core.rows.chunks import ArrowChunk
from rowmill.errors import SourceError
from rowmill.io.sources import open_source
from rowmill.ports import Chunk


def rows_of(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    return [row for chunk in open_source(str(path), **options).chunks() for row in chunk.records()]


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        rows_of(path, **options)
    return str(caught.value)


# Names


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "in.csv")


def test_a_folder_is_refused_with_advice(tmp_path: Path) -> None:
    assert f"{tmp_path}/*.csv" in refusal(tmp_path)


def test_the_advice_about_a_folder_goes_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"")
    assert f"{tmp_path}/*.parquet" in refusal(tmp_path)


def test_a_glob_without_match_is_refused(tmp_path: Path) -> None:
    assert "no file matches" in refusal(tmp_path / "*.csv")


@pytest.mark.parametrize("name", ["in.xls", "in", "in.csv.bz2", "csv"])
def test_an_unknown_ending_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a\n")
    assert ".csv .tsv .jsonl .ndjson .json .parquet .txt" in refusal(tmp_path / name)


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "IN.CSV").write_text("a\n1\n")
    assert rows_of(tmp_path / "IN.CSV") == [{"a": "1"}]


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a\n")
    # Tests may run as root, who may read everything.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    assert "permission denied" in refusal(path)


def test_a_delimiter_for_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    assert "--delimiter is for CSV" in refusal(tmp_path / "in.jsonl", delimiter=";")


def test_a_pipe_is_refused_with_advice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in.csv")
    assert "standard input" in refusal(tmp_path / "in.csv")


def test_a_name_that_only_mentions_tsv_is_csv(tmp_path: Path) -> None:
    (tmp_path / "from.tsv.csv").write_text("a,b\n1,2\n")
    assert rows_of(tmp_path / "from.tsv.csv") == [{"a": "1", "b": "2"}]


# Globs


def test_a_path_with_glob_characters_that_exists_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "in[1].csv").write_text("a\nliteral\n")
    (tmp_path / "in1.csv").write_text("a\nmatched\n")
    assert rows_of(tmp_path / "in[1].csv") == [{"a": "literal"}]


def test_files_of_a_glob_come_in_order_of_their_names_and_indices_run_on(tmp_path: Path) -> None:
    for name, value in [("b.csv", "2"), ("a.csv", "1"), ("c.csv", "3")]:
        (tmp_path / name).write_text(f"a\n{value}\n")
    chunks = list(open_source(str(tmp_path / "*.csv")).chunks())
    assert [list(chunk.indices) for chunk in chunks] == [[0], [1], [2]]
    assert [row["a"] for chunk in chunks for row in chunk.records()] == ["1", "2", "3"]


def test_the_columns_of_a_glob_are_the_union(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"c,a\n3,4\n"))
    source = open_source(str(tmp_path / "*.csv*"))
    assert source.columns() == ("a", "b", "c")
    assert rows_of(tmp_path / "*.csv*") == [{"a": "1", "b": "2"}, {"c": "3", "a": "4"}]


def test_a_fault_in_one_of_many_files_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n1,2\n")
    faults = [fault for chunk in open_source(str(tmp_path / "*.csv")).chunks() for fault in chunk.faults.values()]
    assert [str(fault) for fault in faults] == [f"line 2: in {tmp_path}/b.csv: expected 1 field, found 2"]


def test_files_of_different_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.jsonl").write_text("{}\n")
    assert "different kinds" in refusal(tmp_path / "*")


def test_parquet_files_whose_types_differ_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.nulls(1), "x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [1], "x": [2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"x": ["text"]}), tmp_path / "c.parquet")
    said = refusal(tmp_path / "*.parquet")
    assert f"column 'x' is int64 in {tmp_path}/a.parquet and string in {tmp_path}/c.parquet" in said
    assert len(rows_of(tmp_path / "[ab].parquet")) == 2


# Compression


def lines_of(count: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % number for number in range(count))


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("ending", PACKINGS)
def test_members_that_follow_each_other_are_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"in.jsonl{ending}"
    path.write_bytes(PACKINGS[ending](b'{"n":0}\n{"n"') + PACKINGS[ending](b":1}\n") + b"\0" * 512)
    assert rows_of(path) == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("ending", PACKINGS)
@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_truncated_file_is_an_error_after_the_rows_before_it(tmp_path: Path, ending: str, kind: str) -> None:
    content = lines_of(60_000)
    if kind == "json":
        content = b"[" + content.strip().replace(b"\n", b",\n") + b"]"
    path = tmp_path / f"in.{kind}{ending}"
    packed = PACKINGS[ending](content)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    rows: list[Any] = []

    def read_all() -> None:
        for chunk in open_source(str(path)).chunks():
            rows.extend(chunk.records())

    with pytest.raises(SourceError, match="cut short"):
        read_all()
    assert rows == [{"n": number} for number in range(len(rows))]
    assert len(rows) > 15_000


@pytest.mark.parametrize("ending", PACKINGS)
@pytest.mark.parametrize("rows", [1_000, 30_000])
def test_a_damaged_file_is_an_error(tmp_path: Path, ending: str, rows: int) -> None:
    packed = bytearray(PACKINGS[ending](lines_of(rows)))
    for offset in range(len(packed) // 2, len(packed) // 2 + 64):
        packed[offset] ^= 0xFF
    path = tmp_path / f"in.jsonl{ending}"
    path.write_bytes(packed)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("ending", PACKINGS)
def test_a_name_that_promises_packing_and_a_file_without_is_an_error(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"in.csv{ending}").write_text("a,b\n1,2\n")
    assert "damaged" in refusal(tmp_path / f"in.csv{ending}")


@pytest.mark.parametrize("ending", PACKINGS)
def test_an_empty_packed_file_has_no_rows(tmp_path: Path, ending: str) -> None:
    for content in (b"", PACKINGS[ending](b"")):
        (tmp_path / f"in.csv{ending}").write_bytes(content)
        assert rows_of(tmp_path / f"in.csv{ending}") == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (gzip.compress(b"a\n1\n", mtime=0), ".gz"),
        (zstandard.compress(b"a\n1\n"), ".zst"),
        (bz2.compress(b"a\n1\n"), "bzip2"),
        (b"PK\x03\x04\x14\x00", "spreadsheet"),
        (b"PAR1\x15\x04\x15\x00", ".parquet"),
        (b"ARROW1\0\0", ".arrow"),
    ],
)
def test_a_file_that_is_something_else_says_what(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "in.csv").write_bytes(content)
    assert word in refusal(tmp_path / "in.csv")


def test_a_header_that_begins_like_another_kind_of_file_is_a_header(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("PAR1,PAR2\n1,2\n")
    assert rows_of(tmp_path / "in.csv") == [{"PAR1": "1", "PAR2": "2"}]


@pytest.mark.parametrize(("ending", "kind"), [("parquet", "Parquet"), ("arrow", "Arrow"), ("xlsx", "Excel")])
def test_a_packed_file_of_a_kind_that_is_packed_inside_is_refused(tmp_path: Path, ending: str, kind: str) -> None:
    (tmp_path / f"in.{ending}.gz").write_bytes(b"")
    assert f"{kind} is packed inside" in refusal(tmp_path / f"in.{ending}.gz")


def test_a_sheet_of_what_has_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n")
    assert "--sheet is for Excel" in refusal(tmp_path / "in.csv", sheet="1")


# Encodings

FRENCH = "id,text\n" + "".join(f"{number},déjà vu à l'été\n" for number in range(20))
CHINESE = "id,text\n" + "".join(f"{number},质量很好，非常满意\n" for number in range(20))
RUSSIAN = "id,text\n" + "".join(f"{number},Доставка была быстрой но коробка помята\n" for number in range(20))
JAPANESE = "id,text\n" + "".join(f"{number},配送が遅くて残念でした。また買います\n" for number in range(20))
TRADITIONAL = "id,text\n" + "".join(f"{number},物流太慢了，包裝也壞了\n" for number in range(20))
KOREAN = "id,text\n" + "".join(f"{number},배송이 너무 느려서 실망했어요\n" for number in range(20))
QUOTED = "id,text\n" + "".join(f"{number},it’s “fine” – 5 €\n" for number in range(20))


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        (FRENCH, "latin-1", "latin-1"),
        (QUOTED, "cp1252", "cp1252"),
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "utf-16", "utf-16"),
        (FRENCH, "utf-16-le", "utf-16-le"),
        (FRENCH, "utf-16-be", "utf-16-be"),
        (FRENCH, "utf-32", "utf-32"),
        (CHINESE, "utf-16-le", "utf-16-le"),
        ("id,text\n1,café\n2,thé\n", "latin-1", "latin-1"),
        (RUSSIAN, "cp1251", "cp1251"),
        (RUSSIAN, "koi8-r", "koi8_r"),
        (JAPANESE, "shift_jis", "cp932"),
        (TRADITIONAL, "big5", "big5"),
        (KOREAN, "euc-kr", "cp949"),
    ],
)
def test_a_file_in_another_encoding_is_refused_with_a_guess_that_reads_it(
    tmp_path: Path, text: str, encoding: str, guess: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(text.encode(encoding))
    assert refusal(path).endswith(f"try --encoding {guess}")
    expected = [dict(zip(["id", "text"], line.split(",", 1), strict=True)) for line in text.splitlines()[1:]]
    assert rows_of(path, encoding=guess) == expected


def test_a_few_bad_lines_among_good_ones_are_faults_and_no_other_encoding(tmp_path: Path) -> None:
    good = "".join(f"{number},été\n" for number in range(50)).encode()
    (tmp_path / "in.csv").write_bytes(b"id,text\n" + b"x,\xe9\n" * 3 + good)
    assert len(rows_of(tmp_path / "in.csv")) == 53


def test_bytes_that_a_chosen_encoding_does_not_know_cost_their_row_only(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes("a,b\n1,很好\n2,".encode("gb18030") + b"\xff\xff\n3,x\n")
    (chunk,) = open_source(str(tmp_path / "in.csv"), encoding="gb18030").chunks()
    assert [row.get("b") for row in chunk.records()] == ["很好", None, "x"]
    assert str(chunk.faults[1]) == "line 3: not valid gb18030"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "UTF8"])
def test_utf8_may_be_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "in.csv").write_bytes("\ufeffa\né\n".encode())
    assert rows_of(tmp_path / "in.csv", encoding=encoding) == [{"a": "é"}]


def test_an_encoding_applies_to_packed_json_too(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress('{"a":"é\u2028"}\n'.encode("utf-16")))
    assert rows_of(tmp_path / "in.jsonl.gz", encoding="utf-16") == [{"a": "é\u2028"}]


@pytest.mark.parametrize("encoding", ["latin-7x", "hex", "", "rot13"])
def test_an_unknown_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "in.csv").write_text("a\n")
    assert "no encoding is called" in refusal(tmp_path / "in.csv", encoding=encoding)


def test_an_encoding_for_parquet_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    assert "--encoding" in refusal(tmp_path / "in.parquet", encoding="latin-1")


# Parquet and text


def test_parquet_types_and_values_are_kept(tmp_path: Path) -> None:
    table = pa.table(
        {
            "Review Text": pa.array(["→", None]),
            "1st": pa.array([2**63, None], pa.uint64()),
            "naïve": pa.array([float("nan"), 1.5]),
            "": pa.array([1, 2], pa.timestamp("ns", "UTC")),
            "d": pa.array(["x", "y"]).dictionary_encode(),
            "n": pa.nulls(2),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    source = open_source(str(tmp_path / "in.parquet"))
    (chunk,) = source.chunks()
    assert isinstance(chunk, ArrowChunk)
    assert chunk.batch.schema.types == table.schema.types
    assert source.columns() == tuple(table.schema.names)
    assert source.size_hint() == 2
    assert [row["1st"] for row in chunk.records()] == [2**63, None]


def test_a_parquet_file_without_rows_is_valid(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int8())}), tmp_path / "in.parquet")
    source = open_source(str(tmp_path / "in.parquet"))
    assert (list(source.chunks()), source.columns(), source.size_hint()) == ([], ("a",), 0)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"id,text\n1,x\n"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.parquet").write_bytes(content)
    assert "Parquet" in refusal(tmp_path / "in.parquet")


def test_parquet_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "in.parquet")
    assert "more than one column named 'a'" in refusal(tmp_path / "in.parquet")


def test_every_line_of_text_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes('x, "y"\r\n\n\u2028z\n'.encode())
    assert rows_of(tmp_path / "in.txt") == [{"text": 'x, "y"'}, {"text": ""}, {"text": "\u2028z"}]


def test_a_text_line_that_is_no_utf8_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\n\xff\nb\n")
    (chunk,) = open_source(str(tmp_path / "in.txt")).chunks()
    assert str(chunk.faults[1]).startswith("line 2: not valid UTF-8 at byte 1")


# Chunks


def borders(chunks: list[Chunk]) -> list[int]:
    return [len(chunk) for chunk in chunks]


def test_a_chunk_has_at_most_a_thousand_rows(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x\n" * 2_500)
    assert borders(list(open_source(str(tmp_path / "in.txt")).chunks())) == [1_000, 1_000, 500]


def test_a_chunk_of_long_rows_has_fewer(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(("x" * 1_000_000 + "\n") * 10)
    assert borders(list(open_source(str(tmp_path / "in.txt")).chunks())) == [5, 5]


def test_a_chunk_of_long_parquet_rows_has_fewer(tmp_path: Path) -> None:
    texts = [chr(97 + number) * 1_000_000 for number in range(10)]
    pq.write_table(pa.table({"a": texts}), tmp_path / "in.parquet", use_dictionary=False)
    chunks = list(open_source(str(tmp_path / "in.parquet")).chunks())
    assert max(borders(chunks)) <= 5
    assert [row["a"] for chunk in chunks for row in chunk.records()] == texts


def test_a_file_that_grew_has_the_same_chunks_before_its_new_rows(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(1_500))
    before = [chunk.encode() for chunk in open_source(str(path)).chunks()]
    path.write_bytes(lines_of(2_500))
    after = [chunk.encode() for chunk in open_source(str(path)).chunks()]
    assert after[0] == before[0]
