"""JSON lines and JSON files: every record is one row, or one fault with its line."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowmill.core.rows.chunks import ObjectChunk
from rowmill.errors import SourceError
from rowmill.io.sources import open_source
from rowmill.io.sources.json import _Scanner


def read(folder: Path, content: bytes | str, name: str = "in.jsonl") -> tuple[list[dict[str, Any]], dict[int, str]]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows: list[dict[str, Any]] = []
    faults: dict[int, str] = {}
    for chunk in open_source(str(path)).chunks():
        faults.update((len(rows) + offset, str(fault)) for offset, fault in chunk.faults.items())
        rows.extend(chunk.records())
    return rows, faults


def test_values_are_exact_and_missing_keys_stay_missing(tmp_path: Path) -> None:
    rows, faults = read(tmp_path, '{"a":18446744073709551617,"b":1.0}\n{"b":1e400,"c":null}\n{}\n')
    assert rows == [{"a": 18446744073709551617, "b": 1.0}, {"b": Decimal("1e400"), "c": None}, {}]
    assert not faults


def test_each_bad_line_is_a_fault_with_its_number_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        b"[1,2]",
        b"null",
        b'{"prompt":123}',
        b'{"a":"\xff"}',
        b'{"a":',
        b'{"a":1,"a":2}',
        b"",
        b"7",
        b'"x"',
        b"true",
    ]
    rows, faults = read(tmp_path, b"\n".join(lines))
    assert rows == [{}, {}, {"prompt": 123}, {}, {}, {"a": 2}, {}, {}, {}]
    assert {index: fault.split(" (")[0] for index, fault in faults.items()} == {
        0: "line 1: expected a JSON object, found an array",
        1: "line 2: expected a JSON object, found null",
        3: "line 4: not valid UTF-8 at byte 7",
        4: "line 5: not valid JSON: it is cut short",
        6: "line 8: expected a JSON object, found a number",
        7: "line 9: expected a JSON object, found a string",
        8: "line 10: expected a JSON object, found a boolean",
    }


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path: Path) -> None:
    rows, faults = read(tmp_path, '\n{"a":1}\r\n \t\r\n{"a":2}\n\nx\n')
    assert rows == [{"a": 1}, {"a": 2}, {}]
    assert faults[2].startswith("line 6: ")


def test_unicode_line_separators_do_not_split_a_record(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d"
    assert read(tmp_path, json.dumps({"t": text}, ensure_ascii=False)) == ([{"t": text}], {})


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    assert read(tmp_path, b'\xef\xbb\xbf{"a":1}\n') == ([{"a": 1}], {})


def test_rowmills_own_key_is_dropped(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a":1,"_rowmill":{"row":3}}\n')[0] == [{"a": 1}]


def test_deep_nesting_is_a_fault(tmp_path: Path) -> None:
    rows, faults = read(tmp_path, "[" * 200_000 + '\n{"a":1}\n')
    assert rows == [{}, {"a": 1}]
    assert "nested too deeply" in faults[0]


@pytest.mark.parametrize("name", ["in.jsonl", "in.json"])
@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_a_file_without_rows_is_valid(tmp_path: Path, name: str, content: str) -> None:
    assert read(tmp_path, content, name) == ([], {})


def test_standard_input_is_json_lines_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a":1}\nbad\n')))
    source = open_source("-")
    (chunk,) = source.chunks()
    assert list(chunk.records()) == [{"a": 1}, {}]
    assert (source.name, source.rereadable, source.columns()) == ("-", False, None)
    assert not sys.stdin.buffer.closed


@pytest.mark.parametrize("indent", [None, 1])
def test_the_elements_of_an_array_are_rows(tmp_path: Path, indent: int | None) -> None:
    rows = [{"a": 'x"]}\\', "b": [1, {"c": "[{"}]}, {}, {"a": "→\u2028"}]
    assert read(tmp_path, json.dumps(rows, indent=indent), "in.json") == (rows, {})


def test_elements_that_are_no_objects_are_faults_with_their_line(tmp_path: Path) -> None:
    content = b'[\n{"a": 1},\n[1, 2], 7,\n"x", null,\n{"a": NaN},\n{"a": "\xff"}, true\n]\n'
    rows, faults = read(tmp_path, content, "in.json")
    assert rows == [{"a": 1}] + [{}] * 7
    assert [faults[index].partition(":")[0] for index in range(1, 8)] == [
        f"line {line}" for line in (3, 3, 4, 4, 5, 6, 6)
    ]


@pytest.mark.parametrize("content", ["[]", " [ ] \n", "[\n]"])
def test_an_empty_array_has_no_rows(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content, "in.json") == ([], {})


def test_a_json_file_may_hold_json_lines(tmp_path: Path) -> None:
    rows, faults = read(tmp_path, '{"a":1}\n{"a":\n{"a":3}\n', "in.json")
    assert rows == [{"a": 1}, {}, {"a": 3}]
    assert list(faults) == [1]


def test_a_json_file_may_hold_objects_over_several_lines(tmp_path: Path) -> None:
    assert read(tmp_path, '{\n "a": 1\n}\n{\n "a": 2\n}\n', "in.json") == ([{"a": 1}, {"a": 2}], {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('[{"a":1},\n{"a":', "line 2: the value that begins here does not end"),
        ('[{"a":1},\n', "line 2: the file ends within the array"),
        ('[{"a":1}', "line 1: expected a comma or the end"),
        ('[{"a":1}\n{"a":2}]', "line 2: expected a comma or the end"),
        ('[{"a":1}]\nx', "line 2: expected nothing after the end"),
    ],
)
def test_a_broken_array_ends_the_reading_after_the_rows_before(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(content)
    chunks = open_source(str(path)).chunks()
    assert next(next(chunks).records()) == {"a": 1}
    with pytest.raises(SourceError, match=reason):
        next(chunks)


def test_a_json_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="array of objects or JSON lines"):
        read(tmp_path, "<html>", "in.json")


class Slow(io.RawIOBase):
    """Gives a few bytes at a time."""

    def __init__(self, content: bytes, step: int) -> None:
        super().__init__()
        self._content = io.BytesIO(content)
        self._step = step

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content.read(min(self._step, len(buffer)))
        buffer[: len(piece)] = piece
        return len(piece)


json_objects = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.integers() | st.text(alphabet='a"\\[]{},\n', max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@given(st.lists(json_objects, min_size=1, max_size=5), st.integers(1, 7), st.sampled_from([None, 2]))
def test_borders_are_found_wherever_blocks_end(rows: list[dict[str, Any]], step: int, indent: int | None) -> None:
    content = json.dumps(rows, indent=indent).encode()
    scanner = _Scanner(io.BufferedReader(Slow(content, step), 1), "x", block_bytes=step)
    assert scanner.skip(b"[")
    found = []
    while not scanner.skip(b"]"):
        line, text = scanner.element()
        found.append(json.loads(text))
        assert content.split(b"\n")[line - 1].lstrip()
        scanner.skip(b",")
    assert found == rows
    assert scanner.line == content.count(b"\n") + 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_content_makes_reading_json_lines_fail(tmp_path: Path, content: bytes) -> None:
    rows, faults = read(tmp_path, b'{"a":1}\n' * 1_000 + content + b'\n{"a":2}\n')
    assert rows[:1_000] == [{"a": 1}] * 1_000
    assert rows[-1] == {"a": 2}
    assert all(row or index in faults for index, row in enumerate(rows) if row != {})


def test_chunks_of_objects_are_object_chunks(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"a":1}\n')
    assert list(open_source(str(path)).chunks()) == [ObjectChunk(range(1), [{"a": 1}])]
