"""Accuracy: what counts as right, and how it is shown."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from rowmill.core.replies.accuracy import MOST_CLASSES, OTHER, Accuracy, FieldAccuracy


def counted(*pairs: tuple[object, object]) -> FieldAccuracy:
    """Pairs of (expected, answered)."""
    field = FieldAccuracy("sentiment", "label")
    for expected, given in pairs:
        field.add(None if given is None else {"sentiment": given}, {"label": expected, "text": "x"})
    return field


def test_accuracy_is_told_overall_by_class_and_as_a_table() -> None:
    field = counted(("pos", "pos"), ("pos", "neg"), ("neg", "neg"), ("pos", "pos"))
    assert field.object() == {
        "column": "label",
        "rows": 4,
        "right": 3,
        "unanswered": 0,
        "accuracy": 0.75,
        "classes": {
            "pos": {"rows": 3, "right": 2, "accuracy": 2 / 3},
            "neg": {"rows": 1, "right": 1, "accuracy": 1.0},
        },
        "confusion": {"pos": {"pos": 2, "neg": 1}, "neg": {"neg": 1}},
    }


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        (" pos\n", "pos"),
        ("1", 1),
        ("1", 1.0),
        (1, 1.0),
        ("0.5", 0.5),
        (Decimal("0.5"), 0.5),
        ("True", True),
        (False, False),
        ('["a"]', ["a"]),
        ("馬", "馬"),
    ],
)
def test_values_are_compared_as_text(expected: object, given: object) -> None:
    assert counted((expected, given)).right == 1


@pytest.mark.parametrize(("expected", "given"), [("Pos", "pos"), ("01", 1), ("true", "True"), ("pos", "")])
def test_what_differs_as_text_is_wrong(expected: object, given: object) -> None:
    field = counted((expected, given))
    assert (field.rows, field.right) == (1, 0)


def test_rows_without_an_answer_are_counted_apart() -> None:
    field = counted(("pos", "pos"), ("pos", None))
    assert (field.rows, field.unanswered, field.accuracy) == (1, 1, 1.0)


@pytest.mark.parametrize("expected", ["", "  ", None])
def test_rows_without_an_expected_value_do_not_count(expected: object) -> None:
    field = counted((expected, "pos"), (expected, None))
    assert (field.rows, field.unanswered, field.accuracy) == (0, 0, None)


def test_a_row_that_lacks_the_column_does_not_count() -> None:
    field = FieldAccuracy("sentiment", "label")
    field.add({"sentiment": "pos"}, {"text": "x"})
    assert field.rows == 0


def test_many_classes_are_bounded_but_still_rightly_counted() -> None:
    field = counted(*((f"name {at}", f"name {at}" if at % 2 else "wrong") for at in range(1000)))
    assert len(field.classes()) <= MOST_CLASSES + 1
    assert OTHER in field.classes()
    assert (field.rows, field.right) == (1000, 500)


def test_few_classes_are_shown_as_a_table() -> None:
    field = counted(("好评", "好评"), ("negative", "好评"), ("negative", "negative"))
    assert field.lines() == [
        "accuracy of sentiment against label: 2 of 3 right (66.7%)",
        "  expected  -> negative  -> 好评   right",
        "  negative            1        1   50.0%",
        "  好评                0        1  100.0%",
    ]


def test_many_classes_are_shown_as_the_usual_mistakes() -> None:
    pairs = [(f"c{at}", f"c{at}") for at in range(20)]
    lines = counted(*pairs, ("c1", "c2"), ("c1", "c2"), ("c3", "c4")).lines()
    assert lines[1:] == ["  c1 was answered c2: 2", "  c3 was answered c4: 1"]


def test_nothing_to_compare_is_said() -> None:
    assert counted(("pos", None)).lines() == [
        "accuracy of sentiment: nothing to compare with column label, 1 without an answer"
    ]


def test_each_expected_field_has_its_own_figures_and_all_is_json() -> None:
    accuracy = Accuracy({"sentiment": "label", "topic": "subject"})
    accuracy.add({"sentiment": "pos", "topic": "a"}, {"label": "pos", "subject": "b"})
    found = json.loads(json.dumps(accuracy.object()))
    assert found["sentiment"]["accuracy"] == 1.0
    assert found["topic"]["accuracy"] == 0.0
    assert len(accuracy.lines()) == 6
