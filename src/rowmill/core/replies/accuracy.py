"""Answers against the values that were expected: accuracy overall and by class, and a confusion table.

Counts only, streamed and bounded: must not know where rows come from, nor keep any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import east_asian_width

import msgspec

from rowmill.core.shortening import shortened

MOST_CLASSES = 50
OTHER = "(other)"

_WIDEST_TABLE = 8
_MOST_MISTAKES = 10
_LABEL_CHARS = 24


class FieldAccuracy:
    """One answer field against one column.

    `rows` counts rows with both a value and an expected value, `right` those that agree, `unanswered` those
    that have only the expected one.  Of more than 50 classes the rest counts as `(other)` in the table; what is
    right is decided before.
    """

    def __init__(self, field: str, column: str) -> None:
        self.field = field
        self.column = column
        self.rows = 0
        self.right = 0
        self.unanswered = 0
        self._table: Counter[tuple[str, str]] = Counter()
        self._right: Counter[str] = Counter()
        self._classes: set[str] = set()

    def add(self, answer: Mapping[str, object] | None, row: Mapping[str, object]) -> None:
        """Counts one row; `answer` is None where there is none.  Rows without an expected value do not count."""
        expected = _text(row.get(self.column))
        if not expected:
            return
        value = None if answer is None else answer.get(self.field)
        if value is None:
            self.unanswered += 1
            return
        given = _text(value)
        if isinstance(value, bool):
            expected = expected.lower()
        cell = self._class(expected), self._class(given)
        self.rows += 1
        self._table[cell] += 1
        if expected == given:
            self.right += 1
            self._right[cell[0]] += 1

    @property
    def accuracy(self) -> float | None:
        """Share of the answered rows that are right, None before the first."""
        return self.right / self.rows if self.rows else None

    def classes(self) -> list[str]:
        """Classes seen, expected or answered, the most frequent expected ones first."""
        totals = self._totals()
        return sorted({name for cell in self._table for name in cell}, key=lambda name: (-totals[name], name))

    def object(self) -> dict[str, object]:
        """For --json."""
        totals = self._totals()
        table: dict[str, dict[str, int]] = {}
        for (expected, given), number in sorted(self._table.items()):
            table.setdefault(expected, {})[given] = number
        return {
            "column": self.column,
            "rows": self.rows,
            "right": self.right,
            "unanswered": self.unanswered,
            "accuracy": self.accuracy,
            "classes": {
                name: {
                    "rows": totals[name],
                    "right": self._right[name],
                    "accuracy": self._right[name] / totals[name],
                }
                for name in self.classes()
                if totals[name]
            },
            "confusion": table,
        }

    def lines(self) -> list[str]:
        """For the summary: one line of accuracy, then the table, or with many classes the usual mistakes."""
        missing = f", {self.unanswered:,} without an answer" if self.unanswered else ""
        if not self.rows:
            return [f"accuracy of {self.field}: nothing to compare with column {self.column}{missing}"]
        share = f"{self.right:,} of {self.rows:,} right ({self.right / self.rows:.1%})"
        head = f"accuracy of {self.field} against {self.column}: {share}{missing}"
        return [head, *(self._grid() if len(self.classes()) <= _WIDEST_TABLE else self._mistakes())]

    def _totals(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for (expected, _), number in self._table.items():
            totals[expected] += number
        return totals

    def _class(self, text: str) -> str:
        if text not in self._classes:
            if len(self._classes) >= MOST_CLASSES:
                return OTHER
            self._classes.add(text)
        return text

    def _grid(self) -> list[str]:
        classes, totals = self.classes(), self._totals()
        cells = [["expected", *(f"-> {_short(name)}" for name in classes), "right"]]
        for expected in classes:
            if totals[expected]:
                counts = [f"{self._table[expected, given]:,}" for given in classes]
                cells.append([_short(expected), *counts, f"{self._right[expected] / totals[expected]:.1%}"])
        return _aligned(cells)

    def _mistakes(self) -> list[str]:
        wrong = Counter({cell: number for cell, number in self._table.items() if cell[0] != cell[1]})
        return [
            f"  {_short(expected)} was answered {_short(given)}: {number:,}"
            for (expected, given), number in wrong.most_common(_MOST_MISTAKES)
        ]


class Accuracy:
    """Every field that a job expects something of: `expect` is answer field -> column."""

    def __init__(self, expect: Mapping[str, str]) -> None:
        self.fields = tuple(FieldAccuracy(field, column) for field, column in expect.items())

    def add(self, answer: Mapping[str, object] | None, row: Mapping[str, object]) -> None:
        """Counts one finished row: its answer columns and its input columns."""
        for field in self.fields:
            field.add(answer, row)

    def object(self) -> dict[str, object]:
        """For --json: answer field -> its figures."""
        return {field.field: field.object() for field in self.fields}

    def lines(self) -> list[str]:
        """For the summary."""
        return [line for field in self.fields for line in field.lines()]


def _text(value: object) -> str:
    """A value as a CSV cell would hold it, without white space around it; empty for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value, enc_hook=str).decode().strip('"')


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LABEL_CHARS)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(_padded(row, widths)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        gap = " " * (width - _width(cell))
        yield gap + cell if column else cell + gap


def _width(text: str) -> int:
    """Columns on a terminal."""
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)
