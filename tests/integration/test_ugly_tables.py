"""Tables of odd shape, size and type, and files that change, end to end (CASES F; see also test_bad_input)."""

from __future__ import annotations

import csv
import datetime as dt
import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workplace import Workplace, own_tokens

import rowmill

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ["jsonl", "csv", "tsv", "parquet"]


@pytest.fixture(autouse=True)
def in_folder(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace.folder)


def run(workplace: Workplace, source: str, output: str, **options: Any) -> rowmill.Result:
    usual = {"prompt": "{{ text[:40] }}", "model": "sim", "url": workplace.simulator.url, "in_flight": 50}
    return rowmill.run(source, output=output, **{**usual, **options})


def read(path: str) -> list[dict[str, Any]]:
    if path.endswith(".parquet"):
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    content = Path(path).read_text(encoding="utf-8")
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in content.split("\n") if line]
    csv.field_size_limit(1 << 30)
    return list(csv.DictReader(content.splitlines(keepends=True), delimiter="\t" if path.endswith("tsv") else ","))


@pytest.mark.parametrize("format", FORMATS)
def test_a_thousand_columns_come_through(workplace: Workplace, format: str) -> None:
    names = ["text", *(f"column {workplace}" for workplace in range(999))]
    lines = [",".join([f"[[row-{row}]]", *(f"{row}-{column}" for column in range(999))]) for row in range(30)]
    workplace.write("in.csv", "\n".join([",".join(names), *lines]) + "\n")
    assert run(workplace, "in.csv", f"out.{format}").exit_code == 0
    rows = read(f"out.{format}")
    assert list(rows[0])[:1_000] == names
    assert rows[29]["column 998"] == "29-998"
    assert rows[29]["answer"] == "row-29"


@pytest.mark.parametrize(
    ("source", "output"), [("in.csv", "out.parquet"), ("in.jsonl", "out.csv"), ("in.parquet", "out.jsonl")]
)
def test_rows_of_four_megabytes_come_through(workplace: Workplace, source: str, output: str) -> None:
    rows = [{"id": str(n), "text": f"[[row-{n}]] " + chr(97 + n) * 4_000_000} for n in range(3)]
    write_rows(workplace.folder / source, rows)
    assert run(workplace, source, output).exit_code == 0
    found = read(output)
    assert own_tokens(found)
    assert all(row["text"] == wanted["text"] for row, wanted in zip(found, rows, strict=True))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, dt.UTC)
# Column, how it reads in a prompt, how in JSON lines, how in CSV.
TYPES: dict[str, tuple[pa.Array, str, str, str]] = {
    "decimal": (pa.array([Decimal("1.10")], pa.decimal128(10, 2)), "1.10", "1.10", "1.10"),
    "moment": (pa.array([MOMENT]), "2024-01-02T03:04:05.678000+00:00", '"2024-01-02T03:04:05.678000Z"', ""),
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001", "", ""),
    "day": (pa.array([dt.date(2024, 1, 2)]), "2024-01-02", "", ""),
    "list": (pa.array([[1, None]]), "[1,null]", "[1,null]", "[1,null]"),
    "struct": (pa.array([{"a": 1, "b": ["→"]}]), '{"a":1,"b":["→"]}', '{"a":1,"b":["→"]}', '{"a":1,"b":["→"]}'),
    "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), '[["k",1]]', '[["k",1]]', '[["k",1]]'),
    "binary": (pa.array([b"\0\xff"]), "AP8=", "", ""),
    "boolean": (pa.array([True]), "true", "true", "true"),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615", "18446744073709551615", ""),
    "category": (pa.array(["x"]).dictionary_encode(), "x", "", ""),
    "nothing": (pa.nulls(1), "", "null", ""),
}


@pytest.mark.parametrize("kind", [".parquet", ".arrow"])
def test_every_type_comes_through_in_prompts_and_in_all_formats(workplace: Workplace, kind: str) -> None:
    table = pa.table({name: column for name, (column, *_) in TYPES.items()})
    table = table.append_column("text", pa.array(["[[row-0]]"]))
    if kind == ".parquet":
        pq.write_table(table, "in.parquet")
    else:
        with pa.OSFile("in.arrow", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    for format in FORMATS:
        assert run(workplace, f"in{kind}", f"out.{format}").exit_code == 0
    assert pq.read_table("out.parquet").select(table.column_names).equals(table)
    line = Path("out.jsonl").read_text(encoding="utf-8")
    cells = read("out.csv")[0]
    for name, (_, prompt, json_text, cell) in TYPES.items():
        assert f'"{name}":{json_text or json.dumps(prompt)},' in line
        assert cells[name] == (cell or json_text.strip('"').replace("null", "") or prompt)
    assert read("out.tsv") == [{**cells, "_latency_s": read("out.tsv")[0]["_latency_s"]}]


def test_every_type_has_its_text_in_a_prompt(workplace: Workplace) -> None:
    pq.write_table(pa.table({name: column for name, (column, *_) in TYPES.items()}), workplace.folder / "in.parquet")
    prompt = " ".join(f"{name}={{{{ {name} }}}};" for name in TYPES)
    shown = workplace.rowmill("check", "in.parquet", "-p", prompt, "-m", "sim", "--url", "http://x/v1")
    wanted = " ".join(f"{name}={prompt};" for name, (_, prompt, *_) in TYPES.items())
    assert json.dumps(wanted, ensure_ascii=False)[1:-1] in shown.out


# Files that change


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(workplace: Workplace, tmp_path: Path) -> None:
    from rowmill.io.sources import open_source

    path = workplace.write("in.jsonl", b"".join(b'{"n":%d}\n' % n for n in range(2_500)))
    chunks = open_source(str(path)).chunks()
    rows = [row["n"] for row in next(chunks).records()]
    with open(path, "ab") as file:
        file.write(b"".join(b'{"n":%d}\n' % n for n in range(2_500, 9_000)))
    rows += [row["n"] for chunk in chunks for row in chunk.records()]
    assert rows == list(range(9_000))


def test_a_line_that_was_half_written_when_it_was_read_is_asked_about_once_it_is_whole(workplace: Workplace) -> None:
    whole = "".join(json.dumps({"id": str(n), "text": f"[[row-{n}]]"}) + "\n" for n in range(5))
    workplace.write("in.jsonl", whole[:-9])
    ended = run(workplace, "in.jsonl", "out.jsonl")
    assert (ended.exit_code, ended.counts) == (3, {"ok": 4, "failed": 1})
    workplace.write("in.jsonl", whole)
    assert run(workplace, "in.jsonl", "out.jsonl").exit_code == 0
    assert own_tokens(workplace.output())
    assert workplace.request_total() == 5


@pytest.mark.parametrize("source", ["in.csv", "in.parquet"])
def test_a_file_that_was_swapped_between_start_and_resume_is_noticed(
    workplace: Workplace, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    def write(first: int) -> None:
        rows = [{"id": str(n), "text": f"[[row-{n}]]"} for n in range(first, first + 10)]
        write_rows(workplace.folder / source, rows)

    write(0)
    assert run(workplace, source, "out.jsonl").exit_code == 0
    write(6)
    with caplog.at_level(logging.INFO, "rowmill"):
        assert run(workplace, source, "out.jsonl").exit_code == 0
    assert "the input has changed: 4 finished rows were found again in it, 6 are no longer in it" in caplog.text
    assert [row["id"] for row in workplace.output()] == [str(n) for n in range(6, 16)]
    assert own_tokens(workplace.output())
    assert workplace.request_total() == 16


def test_a_file_that_lost_its_end_is_noticed(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    workplace.write_rows(10)
    assert run(workplace, "in.csv", "out.jsonl").exit_code == 0
    workplace.write_rows(7)
    with caplog.at_level(logging.INFO, "rowmill"):
        assert run(workplace, "in.csv", "out.jsonl").exit_code == 0
    assert "7 finished rows were found again in it, 3 are no longer in it" in caplog.text
    assert len(workplace.output()) == 7


def test_a_format_that_was_swapped_is_the_same_input_if_its_rows_are(workplace: Workplace) -> None:
    rows = [{"id": str(n), "text": f"[[row-{n}]]"} for n in range(10)]
    for source in ("in.csv", "in.jsonl", "in.parquet"):
        write_rows(workplace.folder / source, rows)
        assert run(workplace, source, "out.jsonl").exit_code == 0
    assert workplace.request_total() == 10


# Parts


@pytest.mark.parametrize("format", FORMATS)
def test_an_output_in_parts_resumes_and_is_written_once(workplace: Workplace, format: str) -> None:
    workplace.write_rows(25)
    output = f"out.{format}"
    assert run(workplace, "in.csv", output, split_rows=10).output == output
    parts = sorted(Path(output).iterdir())
    assert [part.name for part in parts] == [f"part-0000{number}.{format}" for number in range(3)]
    rows = [row for part in parts for row in read(str(part))]
    assert [len(read(str(part))) for part in parts] == [10, 10, 5]
    assert own_tokens(rows)
    stamps = [part.stat().st_mtime_ns for part in parts]
    assert run(workplace, "in.csv", output, split_rows=10).exit_code == 0
    assert [part.stat().st_mtime_ns for part in parts] == stamps
    assert run(workplace, "in.csv", output, split_rows=20).exit_code == 0
    assert len(list(Path(output).iterdir())) == 2
    assert workplace.request_total() == 25


def test_parts_that_were_changed_are_kept_and_written_again_once_they_are_moved_away(workplace: Workplace) -> None:
    workplace.write_rows(5)
    assert run(workplace, "in.csv", "out.csv", split_rows=2).exit_code == 0
    Path("out.csv/part-00001.csv").write_text("spoilt")
    with pytest.raises(rowmill.OutputError, match="is not as this run left it"):
        run(workplace, "in.csv", "out.csv", split_rows=2)
    assert Path("out.csv/part-00001.csv").read_text() == "spoilt"
    Path("out.csv").rename("mine")
    assert run(workplace, "in.csv", "out.csv", split_rows=2).exit_code == 0
    assert Path("out.csv/part-00001.csv").read_text().startswith("id,text")


def test_pending_rows_leave_no_parts_and_export_writes_those_there_are(workplace: Workplace) -> None:
    workplace.write_rows(200)
    stopped = run(workplace, "in.csv", "out.csv", split_rows=10, in_flight=2, rpm=600.0, max_duration_s=0.5)
    assert stopped.exit_code == 4
    assert not Path("out.csv").exists()
    ended = workplace.rowmill("export", "out.csv", "-o", "so-far.jsonl", "--split-rows", "7")
    assert ended.code == 0, ended.err
    rows = [row for part in sorted(Path("so-far.jsonl").iterdir()) for row in read(str(part))]
    assert 0 < len(rows) < 200
    assert own_tokens(rows)


def test_a_number_of_rows_that_no_part_can_have_is_refused(workplace: Workplace) -> None:
    workplace.write_rows(1)
    refused = workplace.run("--split-rows", "0")
    assert refused.code == 2
    assert "--split-rows" in refused.err


# Excel


def workbook(path: Path, write: Callable[[Any], None]) -> None:
    import xlsxwriter

    book = xlsxwriter.Workbook(str(path))
    write(book.add_worksheet("notes"))
    sheet = book.add_worksheet("reviews")
    sheet.write_row(0, 0, ["id", "text", "zip", "price"])
    for n in range(3):
        sheet.write_row(n + 1, 0, [str(n), f"[[row-{n}]]", "007", 9])
    book.close()


def test_a_sheet_of_a_workbook_is_labelled(workplace: Workplace) -> None:
    workbook(workplace.folder / "in.xlsx", lambda notes: notes.write(0, 0, "nothing here"))
    ended = workplace.run("--sheet", "reviews", "-o", "out.parquet", source="in.xlsx")
    assert ended.code == 0, ended.err
    rows = read(str(workplace.folder / "out.parquet"))
    assert own_tokens(rows)
    assert [(row["zip"], row["price"]) for row in rows] == [("007", 9)] * 3
    refused = workplace.run("--sheet", "reveiws", "-o", "other.csv", source="in.xlsx")
    assert refused.code == 2
    assert "no sheet 'reveiws'; it has 'notes', 'reviews'" in refused.err


def test_the_results_of_a_batch_file_have_no_parts(workplace: Workplace) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}
    workplace.write("in.jsonl", json.dumps(line) + "\n")
    with pytest.raises(rowmill.JobError, match="split"):
        run(workplace, "in.jsonl", "out.jsonl", prompt=None, split_rows=2)
