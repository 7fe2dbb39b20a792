"""CSV output: what each kind of value looks like."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rowmill.core.rows.chunks import ArrowChunk, ObjectChunk
from rowmill.core.rows.outputs import AnswerColumn, Batch, OutputColumns
from rowmill.io.sinks import OutputShape, create_sink
from rowmill.ports import Chunk
from rowmill.records import Outcome, Status


def outcome(index: int, answer: bytes | None = None) -> Outcome:
    return Outcome(index, Status.OK, answer, None, None, None, 1, None, None, None, None, None)


def written(folder: Path, chunk: Chunk, answer: bytes = b"{}", format: str = "csv", **options: Any) -> list[str]:
    """Lines of the output without Rowmill's own columns."""
    columns = OutputColumns(tuple(chunk.columns), (AnswerColumn("v", "json"),))
    sink = create_sink(str(folder / "out"), OutputShape(format, **options), columns, list)
    outcomes = [outcome(i, answer) for i in chunk.indices]
    sink.write(Batch(chunk, outcomes, columns))
    sink.commit()
    content = (folder / "out").read_bytes().decode()
    tail = ["\t0\tok" if format == "tsv" else ",0,ok"][0]
    return [line.split(tail)[0] for line in content.split("\n")[1:-1]]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        ("", ""),
        (True, "true"),
        (2**70, "1180591620717411303424"),
        (0.1, "0.1"),
        (1e22, "1e+22"),
        (float("nan"), ""),
        (Decimal("1E+400"), "1E+400"),
        ({"k": "→", "l": [1]}, '"{""k"":""→"",""l"":[1]}"'),
        ([], "[]"),
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("two\nlines", '"two\nlines"'),
        (" spaces ", " spaces "),
        ("→ 馬 😀", "→ 馬 😀"),
        ("half \ud800", "half ?"),
    ],
)
def test_a_json_value_has_one_form(tmp_path: Path, value: Any, cell: str) -> None:
    assert "\n".join(written(tmp_path, ObjectChunk(range(1), [{"a": value}]))) == f"{cell},"


def test_a_carriage_return_is_quoted(tmp_path: Path) -> None:
    assert written(tmp_path, ObjectChunk(range(1), [{"a": "x\r"}])) == ['"x\r",']


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (pa.array([dt.datetime(2024, 1, 2, 3, 4, 5)]), "2024-01-02T03:04:05"),
        (pa.array([dt.date(2024, 1, 2)]), "2024-01-02"),
        (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
        (pa.array([Decimal("1.10")]), "1.10"),
        (pa.array([b"\x00\xff"]), "AP8="),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), '"[[""k"",1]]"'),
    ],
)
def test_an_arrow_value_has_one_form(tmp_path: Path, column: pa.Array, cell: str) -> None:
    assert written(tmp_path, ArrowChunk(range(1), pa.record_batch({"a": column}))) == [f"{cell},"]


def test_an_answer_that_is_nested_is_json(tmp_path: Path) -> None:
    assert written(tmp_path, ObjectChunk(range(1), [{"a": 1}]), b'{"v":["x",1]}') == ['1,"[""x"",1]"']


def test_tsv_quotes_tabs_and_not_commas(tmp_path: Path) -> None:
    assert written(tmp_path, ObjectChunk(range(1), [{"a": "x,y", "b": "x\ty"}]), format="tsv") == ['x,y\t"x\ty"\t']


FORMULAS = ["=1+1", "+1", "-1", "@a", "\ta", "\ra"]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_written_as_they_are_by_default(tmp_path: Path, text: str) -> None:
    (line,) = written(tmp_path, ObjectChunk(range(1), [{"a": text}]))
    assert line.strip('",') == text


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_guarded_where_asked(tmp_path: Path, text: str) -> None:
    (line,) = written(tmp_path, ObjectChunk(range(1), [{"a": text}]), escape_formulas=True)
    assert line.strip('",') == "'" + text


def test_numbers_are_no_formulas(tmp_path: Path) -> None:
    chunk = ObjectChunk(range(1), [{"a": -1, "b": -0.5, "c": "x=1"}])
    assert written(tmp_path, chunk, escape_formulas=True) == ["-1,-0.5,x=1,"]
