"""Excel: what of a sheet is a header, a row and a value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from rowmill.errors import SourceError
from rowmill.io.sources import FileSource, open_source

Write = Callable[[Any, Any], None]


def book(path: Path, **sheets: Write) -> str:
    """A workbook with these sheets, each written by its function."""
    target = str(path / "in.xlsx")
    workbook = xlsxwriter.Workbook(target)
    for name, write in sheets.items():
        write(workbook.add_worksheet(name), workbook)
    workbook.close()
    return target


def cells(*rows: list[Any]) -> Write:
    def write(sheet: Any, _: Any) -> None:
        for number, row in enumerate(rows):
            for column, value in enumerate(row):
                if isinstance(value, str):
                    sheet.write_string(number, column, value)
                else:
                    sheet.write(number, column, value)

    return write


def rows_of(source: FileSource) -> list[dict[str, Any]]:
    return [row for chunk in source.chunks() for row in chunk.records()]


def read(path: Path, write: Write) -> list[dict[str, Any]]:
    return rows_of(open_source(book(path, Sheet=write)))


def test_text_stays_text_and_whole_numbers_are_integers(tmp_path: Path) -> None:
    found = read(tmp_path, cells(["a", "b", "c"], ["007", 7, 1.5], ["→ 馬\nx", 2**53, True]))
    assert found == [{"a": "007", "b": 7, "c": 1.5}, {"a": "→ 馬\nx", "b": 2**53, "c": True}]
    assert [type(value) for value in found[0].values()] == [str, int, float]


def test_dates_and_times_are_iso_8601(tmp_path: Path) -> None:
    def write(sheet: Any, workbook: Any) -> None:
        sheet.write_row(0, 0, ["day", "moment", "time"])
        sheet.write_datetime(1, 0, dt.datetime(2024, 2, 29), workbook.add_format({"num_format": "yyyy-mm-dd"}))
        moment = dt.datetime(2024, 2, 29, 13, 4, 5)
        sheet.write_datetime(1, 1, moment, workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}))
        sheet.write_datetime(1, 2, dt.time(13, 4, 5), workbook.add_format({"num_format": "hh:mm:ss"}))

    assert read(tmp_path, write) == [{"day": "2024-02-29", "moment": "2024-02-29T13:04:05", "time": "13:04:05"}]


def test_formulas_are_their_values_and_errors_null(tmp_path: Path) -> None:
    def write(sheet: Any, _: Any) -> None:
        sheet.write_row(0, 0, ["sum", "text", "error"])
        sheet.write_formula(1, 0, "=1+1", None, 2)
        sheet.write_formula(1, 1, '="a"&"b"', None, "ab")
        sheet.write_formula(1, 2, "=1/0", None, "#DIV/0!")

    assert read(tmp_path, write) == [{"sum": 2, "text": "ab", "error": None}]


def test_empty_cells_are_null_and_blank_rows_are_none(tmp_path: Path) -> None:
    found = read(tmp_path, cells(["a", "b"], ["x", None], [None, None], [None, "y"]))
    assert found == [{"a": "x", "b": None}, {"a": None, "b": "y"}]


def test_a_table_may_begin_anywhere_and_formats_without_values_are_nothing(tmp_path: Path) -> None:
    def write(sheet: Any, workbook: Any) -> None:
        sheet.write_row(3, 2, ["a", "b"])
        sheet.write_row(4, 2, ["x", 1])
        sheet.write_blank(9, 9, None, workbook.add_format({"bold": True}))

    assert read(tmp_path, write) == [{"a": "x", "b": 1}]


def test_a_merged_title_above_the_header_is_left_out(tmp_path: Path) -> None:
    def write(sheet: Any, _: Any) -> None:
        sheet.merge_range(0, 0, 0, 1, "Report of 2024")
        sheet.write_row(2, 0, ["a", "b"])
        sheet.write_row(3, 0, ["x", "y"])

    assert read(tmp_path, write) == [{"a": "x", "b": "y"}]


def test_columns_under_a_merged_header_are_told_apart(tmp_path: Path) -> None:
    def write(sheet: Any, _: Any) -> None:
        sheet.write(0, 0, "id")
        sheet.merge_range(0, 1, 0, 3, "score")
        sheet.write_row(1, 0, [1, 2, 3, 4])

    assert read(tmp_path, write) == [{"id": 1, "score": 2, "score_2": 3, "score_3": 4}]


def test_values_without_a_header_are_kept_under_their_columns_position(tmp_path: Path) -> None:
    assert read(tmp_path, cells(["a", None, None], ["x", "note", 5])) == [{"a": "x", "column_2": "note", "column_3": 5}]


def test_headers_that_are_numbers_are_their_text(tmp_path: Path) -> None:
    assert read(tmp_path, cells([2023, 2024], [1, 2])) == [{"2023": 1, "2024": 2}]


def test_a_header_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="more than one column named 'a'"):
        read(tmp_path, cells(["a", "a"], [1, 2]))


@pytest.mark.parametrize(("sheet", "value"), [(None, 1), ("second", 2), ("2", 2), ("1", 1)])
def test_the_sheet_is_the_first_or_the_one_that_is_named(tmp_path: Path, sheet: str | None, value: int) -> None:
    path = book(tmp_path, first=cells(["a"], [1]), second=cells(["a"], [2]))
    assert rows_of(open_source(path, sheet=sheet)) == [{"a": value}]


def test_a_sheet_that_is_not_there_is_refused_with_those_there_are(tmp_path: Path) -> None:
    path = book(tmp_path, first=cells(["a"]), second=cells(["a"]))
    with pytest.raises(SourceError, match="no sheet 'third'; it has 'first', 'second'"):
        open_source(path, sheet="third").columns()


@pytest.mark.parametrize("write", [cells(), cells(["a", "b"])])
def test_a_sheet_without_rows_is_valid(tmp_path: Path, write: Write) -> None:
    source = open_source(book(tmp_path, Sheet=write))
    assert (list(source.chunks()), source.size_hint()) == ([], 0)


@pytest.mark.parametrize("content", [b"", b"id,text\n", b"PK\x03\x04junk"])
def test_what_is_no_workbook_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.xlsx").write_bytes(content)
    with pytest.raises(SourceError, match="damaged or no Excel workbook"):
        open_source(str(tmp_path / "in.xlsx")).columns()
