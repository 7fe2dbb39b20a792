"""Any table that other tools write comes through every pair of formats with the same columns."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlsxwriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowmill.core.rows.chunks import encode_json
from rowmill.core.rows.outputs import Batch, OutputColumns
from rowmill.io.sinks import OutputShape, create_sink
from rowmill.io.sources import open_source
from rowmill.records import Outcome, Status

Cells = list[list[str]]

# Without what XML cannot hold (controls) and what a workbook takes for an escape (_x0041_).
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="_￾￿"), max_size=8)
odd = ["007", "1e5", "nan", "NULL", "true", '"', "a\nb", "=1", ",", "\t", "\u2028", "{{ x }}"]
cells = texts | st.sampled_from(odd)
names = st.lists(texts.filter(lambda name: name.strip() and not name.startswith("\ufeff")), min_size=1, max_size=4)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], Cells]:
    """Names of columns and rows of texts, of which none is blank as a whole."""
    columns = list(dict.fromkeys(draw(names)))
    row = st.lists(cells, min_size=len(columns), max_size=len(columns)).filter(lambda found: any(found))
    return columns, draw(st.lists(row, max_size=5))


def write_table(path: Path, columns: list[str], rows: Cells, delimiter: str = ",") -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([columns, *rows])


def write_json_lines(path: Path, columns: list[str], rows: Cells) -> None:
    lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def write_json(path: Path, columns: list[str], rows: Cells) -> None:
    path.write_text(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]), encoding="utf-8")


def arrow_table(columns: list[str], rows: Cells) -> pa.Table:
    return pa.table([pa.array([row[column] for row in rows], pa.string()) for column in range(len(columns))], columns)


def write_arrow(path: Path, columns: list[str], rows: Cells) -> None:
    table = arrow_table(columns, rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_workbook(path: Path, columns: list[str], rows: Cells) -> None:
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet()
    for number, row in enumerate([columns, *rows]):
        for column, cell in enumerate(row):
            sheet.write_string(number, column, cell)
    book.close()


WRITERS: dict[str, Callable[[Path, list[str], Cells], None]] = {
    "csv": write_table,
    "tsv": lambda path, columns, rows: write_table(path, columns, rows, "\t"),
    "jsonl": write_json_lines,
    "json": write_json,
    "parquet": lambda path, columns, rows: pq.write_table(arrow_table(columns, rows), path),
    "arrow": write_arrow,
    "xlsx": write_workbook,
}


def passed_on(source: Path, target: Path, columns: list[str]) -> None:
    """Every row of the source, written as finished rows are."""
    output = OutputColumns(tuple(columns), ())
    chunks = list(open_source(str(source)).chunks())
    sink = create_sink(str(target), OutputShape(target.suffix[1:]), output, lambda: chunks)
    for chunk in chunks:
        outcomes = [Outcome(i, Status.OK, None, None, None, None, 1, *[None] * 5) for i in chunk.indices]
        sink.write(Batch(chunk, outcomes, output))
    sink.commit()


def others_read(path: Path) -> list[dict[str, Any]]:
    """The rows as other tools read them."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    content = path.read_bytes().decode("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line, parse_float=Decimal) for line in content.split("\n")[:-1]]
    return list(csv.DictReader(io.StringIO(content, newline=""), delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize("output", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("source", WRITERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_text_that_others_write_comes_out_as_it_is(
    tmp_path: Path, source: str, output: str, table: tuple[list[str], Cells]
) -> None:
    columns, rows = table
    path, target = tmp_path / f"in.{source}", tmp_path / f"out.{output}"
    WRITERS[source](path, columns, rows)
    passed_on(path, target, columns)
    # A workbook does not tell an empty text from an empty cell.
    empty: Any = None if source == "xlsx" and output in ("jsonl", "parquet") else ""
    found = [[row[name] for name in columns] for row in others_read(target)]
    assert found == [[cell or empty for cell in row] for row in rows]


moments = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "text": (pa.string(), cells),
    "large text": (pa.large_string(), cells),
    "category": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y"])),
    "decimal": (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), moments),
    "zoned moment": (pa.timestamp("us", "UTC"), moments.map(lambda found: found.replace(tzinfo=dt.UTC))),
    "nanoseconds": (pa.timestamp("ns"), st.integers(-(2**60), 2**60)),
    "time": (pa.time64("us"), st.times()),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(days=-1000), dt.timedelta(days=1000))),
    "binary": (pa.binary(), st.binary(max_size=8)),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]),
        st.fixed_dictionaries({"a": st.none() | cells, "b": st.lists(st.sampled_from([0.5, -1.25]), max_size=2)}),
    ),
}


@st.composite
def typed_tables(draw: st.DrawFn) -> pa.Table:
    """A table of columns of any type, each value of which may be null."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    length = draw(st.integers(0, 5))
    columns = {}
    for name in kinds:
        kind, values = KINDS[name]
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=length, max_size=length)), kind)
    return pa.table(columns)


def write_typed(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("source", ["parquet", "arrow"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=typed_tables())
def test_any_types_come_out_of_parquet_exactly_as_they_were(tmp_path: Path, source: str, table: pa.Table) -> None:
    write_typed(tmp_path / f"in.{source}", table)
    passed_on(tmp_path / f"in.{source}", tmp_path / "out.parquet", table.column_names)
    found = pq.read_table(tmp_path / "out.parquet").select(table.column_names)
    if table.num_rows:
        assert found.equals(table)
    else:
        assert found.num_rows == 0


@pytest.mark.parametrize("output", ["jsonl", "csv", "tsv"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=typed_tables())
def test_any_types_come_out_of_text_formats_in_one_form(tmp_path: Path, output: str, table: pa.Table) -> None:
    write_typed(tmp_path / "in.parquet", table)
    passed_on(tmp_path / "in.parquet", tmp_path / f"out.{output}", table.column_names)
    rows = [row for chunk in open_source(str(tmp_path / "in.parquet")).chunks() for row in chunk.records()]
    wanted = [[_as_json(value) for value in row.values()] for row in rows]
    found = [[row[name] for name in table.column_names] for row in others_read(tmp_path / f"out.{output}")]
    if output == "jsonl":
        assert found == wanted
    else:
        pairs = (zip(row, values, strict=True) for row, values in zip(found, wanted, strict=True))
        assert [[_cell_value(cell, value) for cell, value in row] for row in pairs] == wanted


def _as_json(value: Any) -> Any:
    return json.loads(encode_json(value), parse_float=Decimal)


def _cell_value(cell: str, wanted: Any) -> Any:
    """A cell read as what it should be: CSV says neither types nor whether an empty cell is null."""
    if wanted is None and cell == "":
        return None
    return cell if isinstance(wanted, str) else json.loads(cell, parse_float=Decimal)
