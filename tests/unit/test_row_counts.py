"""How many rows files hold, from their sizes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.io.sources.row_counts import HEAD_BYTES, about_rows


def test_a_small_table_is_counted_with_its_quoted_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('id,text\n1,"a\nb ""c"" \n d"\n2,e')
    assert about_rows(str(path)) == 2


def test_lines_of_json_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"a": "\\n"}\n' * 7)
    assert about_rows(str(path)) == 7


def test_a_large_file_is_reckoned_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "1234567,90\n" * 400_000)
    assert path.stat().st_size > 4 * HEAD_BYTES
    assert about_rows(str(path)) == pytest.approx(400_000, rel=0.001)


def test_all_files_of_a_glob_count(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("id\n1\n2\n")
    assert about_rows(str(tmp_path / "*.csv")) == 4


@pytest.mark.parametrize("name", ["in.csv.gz", "in.parquet", "in.json"])
def test_what_sizes_do_not_tell_is_unknown(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"x\n" * 10)
    assert about_rows(str(path)) is None
    assert about_rows("-") is None
    assert about_rows(str(tmp_path / "absent.csv")) is None
