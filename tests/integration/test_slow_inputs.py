"""Inputs that keep their reader waiting: rows are sent as they come, and the same input is known again."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workplace import Workplace, own_tokens, until

import rowmill


def line(number: int) -> str:
    return json.dumps({"id": str(number), "text": f"[[row-{number}]] text"}) + "\n"


def test_rows_of_an_open_standard_input_are_sent_as_they_come(workplace: Workplace) -> None:
    process = workplace.begin(*workplace.arguments("-"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    for number in range(5):
        process.stdin.write(line(number))
        process.stdin.flush()
        until(lambda number=number: f"row-{number}" in workplace.requests(), process)  # type: ignore[misc]
    process.stdin.close()
    assert process.wait(30) == 0
    assert [row["_row"] for row in workplace.output()] == list(range(5))
    assert own_tokens(workplace.output())


def test_an_input_that_came_slowly_is_known_again_when_it_comes_at_once(workplace: Workplace) -> None:
    process = workplace.begin(*workplace.arguments("-"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    for start in range(0, 1200, 400):
        process.stdin.write("".join(map(line, range(start, start + 400))))
        process.stdin.flush()
        until(lambda start=start: len(workplace.requests()) == start + 400, process)  # type: ignore[misc]
    process.stdin.close()
    assert process.wait(30) == 0
    again = workplace.run(source="-", stdin="".join(map(line, range(1300))))
    assert again.code == 0
    assert "changed" not in again.err
    assert workplace.request_total() == 1300
    assert own_tokens(workplace.output())


def test_an_input_that_came_at_once_is_known_again_when_it_comes_slowly(workplace: Workplace) -> None:
    assert workplace.run(source="-", stdin="".join(map(line, range(30)))).code == 0
    process = workplace.begin(*workplace.arguments("-"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    for start in range(0, 30, 10):
        process.stdin.write("".join(map(line, range(start, start + 10))))
        process.stdin.flush()
        threading.Event().wait(0.5)
    process.stdin.write(line(30))
    process.stdin.flush()
    until(lambda: "row-30" in workplace.requests(), process)
    process.stdin.close()
    assert process.wait(30) == 0
    assert workplace.request_total() == 31
    assert own_tokens(workplace.output())


def test_an_input_that_came_slowly_and_is_now_shorter_is_matched(workplace: Workplace) -> None:
    assert workplace.run(source="-", stdin="".join(map(line, range(30)))).code == 0
    process = workplace.begin(*workplace.arguments("-"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(map(line, range(10))))
    process.stdin.flush()
    threading.Event().wait(0.5)
    process.stdin.close()
    assert process.wait(30) == 0
    assert workplace.request_total() == 30
    assert [row["_row"] for row in workplace.output()] == list(range(10))


def test_duplicates_in_an_input_that_comes_slowly_are_sent_once(workplace: Workplace) -> None:
    process = workplace.begin(*workplace.arguments("-", "--dedupe"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    for _ in range(3):
        process.stdin.write(line(7) + line(8))
        process.stdin.flush()
        threading.Event().wait(0.4)
    process.stdin.close()
    assert process.wait(30) == 0
    assert workplace.requests() == {"row-7": 1, "row-8": 1}
    assert own_tokens(workplace.output())


def test_limits_and_conditions_hold_for_an_input_that_comes_slowly(workplace: Workplace) -> None:
    process = workplace.begin(
        *workplace.arguments("-", "--where", "id | int % 2", "--limit", "4"), stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    for number in range(9):
        process.stdin.write(line(number))
        process.stdin.flush()
        threading.Event().wait(0.25)
    assert process.wait(30) == 0
    assert [row["_row"] for row in workplace.output()] == [1, 3, 5, 7]


@pytest.mark.parametrize("is_stored", [False, True])
def test_items_of_a_generator_are_called_for_as_they_come(tmp_path: Path, is_stored: bool) -> None:
    called = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number in range(3):
            yield number
            assert called[number].wait(30), "the row was held back"

    def call(number: int) -> int:
        called[number].set()
        return number * 2

    kept = {"run_file": tmp_path / "x.rowmill"} if is_stored else {}
    assert rowmill.map(items(), call=call, **kept) == [0, 2, 4]  # type: ignore[call-overload]


def test_rows_of_a_generator_are_asked_for_as_they_come(workplace: Workplace) -> None:
    def rows() -> Iterator[dict[str, str]]:
        for number in range(3):
            yield {"id": str(number), "text": f"[[row-{number}]]"}
            until(lambda number=number: f"row-{number}" in workplace.requests())  # type: ignore[misc]

    found = rowmill.map(rows(), prompt="Say it: {{ text }}", model="sim", url=workplace.simulator.url)
    assert [row["answer"] for row in found] == ["row-0", "row-1", "row-2"]
