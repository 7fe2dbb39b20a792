"""What every source promises, asked of all formats, packings, a glob and databases with the same table."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlsxwriter
import zstandard
from tests.elsewhere import Bucket, WebPages, serving

from rowmill.core.names.databases import database_url
from rowmill.core.rows.chunks import ObjectChunk, decode, row_keys
from rowmill.errors import SourceError
from rowmill.io.sources import open_database, open_source
from rowmill.ports import Source

if TYPE_CHECKING:
    from tests.postgresql import Server

ROWS = [{"id": f"{number:05d}", "text": f'line one, "quoted" → 馬 😀\nline two {number}'} for number in range(2_345)]
ONE_LINE_ROWS = [{"text": f'one, "quoted" → 馬 😀 {number}'} for number in range(2_345)]


def table_text(delimiter: str) -> bytes:
    target = io.StringIO()
    writer = csv.DictWriter(target, ["id", "text"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return target.getvalue().encode()


def parquet_bytes(rows: list[dict[str, str]]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), target, row_group_size=777)
    return target.getvalue()


def arrow_bytes(*, stream: bool) -> bytes:
    target = io.BytesIO()
    table = pa.Table.from_pylist(ROWS)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(target, table.schema) as writer:
        writer.write_table(table, max_chunksize=777)
    return target.getvalue()


def workbook_bytes() -> bytes:
    target = io.BytesIO()
    workbook = xlsxwriter.Workbook(target)
    sheet = workbook.add_worksheet()
    for number, cells in enumerate([list(ROWS[0]), *(list(row.values()) for row in ROWS)]):
        for column, cell in enumerate(cells):
            sheet.write_string(number, column, cell)
    workbook.close()
    return target.getvalue()


CONTENT: dict[str, Callable[[], bytes]] = {
    ".csv": lambda: table_text(","),
    ".tsv": lambda: table_text("\t"),
    ".jsonl": lambda: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode(),
    ".ndjson": lambda: "".join(json.dumps(row) + "\r\n" for row in ROWS).encode(),
    ".json": lambda: json.dumps(ROWS, indent=2).encode(),
    ".parquet": lambda: parquet_bytes(ROWS),
    ".txt": lambda: "".join(row["text"] + "\n" for row in ONE_LINE_ROWS).encode(),
    ".xlsx": workbook_bytes,
    ".arrow": lambda: arrow_bytes(stream=False),
    ".arrows": lambda: arrow_bytes(stream=True),
}
PACKED_INSIDE = (".parquet", ".xlsx", ".arrow", ".arrows")
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
KINDS = [ending + packing for ending in CONTENT for packing in PACKED if ending not in PACKED_INSIDE or not packing]
ELSEWHERE = ["s3:.csv.gz", "s3:.parquet", "s3:.xlsx", "http:.jsonl", "http:.arrow", "http without ranges:.parquet"]
SEVERAL = ["glob", "s3:glob", "saved data set"]


DATABASES = ("postgresql", "sqlite", "duckdb")


def fill_postgresql(server: Server) -> str:
    server.sql("DROP TABLE IF EXISTS rows_to_read", "CREATE TABLE rows_to_read (id text, text text)")
    pairs = ", ".join(f"('{row['id']}', '{row['text']}')" for row in ROWS)
    server.sql(f"INSERT INTO rows_to_read VALUES {pairs}")
    return server.url


def fill_sqlite(folder: Path) -> str:
    with sqlite3.connect(folder / "a.db") as connection:
        connection.execute("CREATE TABLE rows_to_read (id TEXT, text TEXT)")
        connection.executemany("INSERT INTO rows_to_read VALUES (:id, :text)", ROWS)
    return f"sqlite:///{folder}/a.db"


def fill_duckdb(folder: Path) -> str:
    with duckdb.connect(str(folder / "a.duckdb")) as connection:
        connection.from_arrow(pa.Table.from_pylist(ROWS)).create("rows_to_read")
    return f"duckdb:///{folder}/a.duckdb"


def open_filled(kind: str, folder: Path, request: pytest.FixtureRequest) -> Source:
    if kind == "postgresql":
        url = fill_postgresql(request.getfixturevalue("postgresql"))
    else:
        url = fill_sqlite(folder) if kind == "sqlite" else fill_duckdb(folder)
    return open_database(database_url(url), None, "rows_to_read")


Given = tuple[Source, list[dict[str, str]]]


@pytest.fixture(params=[*KINDS, *ELSEWHERE, *SEVERAL, *DATABASES])
def source_and_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Given]:
    """A source and the rows that it has to give."""
    kind: str = request.param
    where, _, elsewhere = kind.rpartition(":")
    if where == "s3":
        yield open_source(in_bucket(request.getfixturevalue("bucket"), elsewhere)), ROWS
    elif where:
        with serving(WebPages(ranges=where == "http")) as pages:
            pages.pages[f"/in{elsewhere}"] = CONTENT[elsewhere]()
            yield open_source(f"{pages.url}/in{elsewhere}?download=1"), ROWS
    elif kind in DATABASES:
        yield open_filled(kind, tmp_path, request), ROWS
    else:
        yield here(kind, tmp_path)


def in_bucket(bucket: Bucket, kind: str) -> str:
    if kind != "glob":
        ending = "." + kind.split(".")[1]
        return bucket.put(f"folder/in{kind}", PACKED[kind.removeprefix(ending)](CONTENT[ending]()))
    for part, lines in enumerate(parts_of_rows()):
        bucket.put(f"folder/part-{part}.jsonl", lines.encode())
    return bucket.url("folder/part-*.jsonl")


def parts_of_rows() -> list[str]:
    return ["".join(json.dumps(row) + "\n" for row in ROWS[start : start + 1_000]) for start in range(0, 3_000, 1_000)]


def here(kind: str, tmp_path: Path) -> tuple[Source, list[dict[str, str]]]:
    if kind == "glob":
        for part, lines in enumerate(parts_of_rows()):
            (tmp_path / f"part-{part}.jsonl").write_text(lines)
        return open_source(str(tmp_path / "part-*.jsonl")), ROWS
    if kind == "saved data set":
        datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=2)
        return open_source(str(tmp_path / "saved")), ROWS
    ending = next(ending for ending in sorted(CONTENT, key=len, reverse=True) if kind.startswith(ending))
    path = tmp_path / f"in{kind}"
    path.write_bytes(PACKED[kind.removeprefix(ending)](CONTENT[ending]()))
    return open_source(str(path)), ONE_LINE_ROWS if ending == ".txt" else ROWS


def test_all_rows_come_in_order_with_their_texts_unchanged(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    assert [row for chunk in source.chunks() for row in chunk.records()] == rows


def test_indices_count_up_from_zero(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    assert [index for chunk in source.chunks() for index in chunk.indices] == list(range(len(rows)))


def test_no_chunk_is_empty_or_has_more_than_a_thousand_rows(source_and_rows: Given) -> None:
    source, _ = source_and_rows
    assert all(1 <= len(chunk) <= 1_000 for chunk in source.chunks())


def test_reading_again_gives_equal_chunks(source_and_rows: Given) -> None:
    source, _ = source_and_rows
    assert source.rereadable
    assert [chunk.encode() for chunk in source.chunks()] == [chunk.encode() for chunk in source.chunks()]


def test_chunks_survive_the_run_file(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    again = [decode(*chunk.encode(), chunk.indices) for chunk in source.chunks()]
    assert [row for chunk in again for row in chunk.records()] == rows


def test_equal_values_have_equal_keys_in_every_format(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    keys = b"".join(row_keys(chunk, ["text"]) for chunk in source.chunks())
    assert keys == row_keys(ObjectChunk(range(len(rows)), rows), ["text"])


def test_known_columns_are_those_that_come(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    columns = source.columns()
    assert columns is None or tuple(columns) == tuple(rows[0])


def test_a_size_that_is_known_is_right(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    assert source.size_hint() in (None, len(rows))


def test_reading_may_stop_anywhere(source_and_rows: Given) -> None:
    source, rows = source_and_rows
    chunks: Any = source.chunks()
    assert next(next(chunks).records()) == rows[0]
    chunks.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_vanished_is_a_source_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"in{kind}"
    path.write_bytes(b"")
    source = open_source(str(path))
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        list(source.chunks())
