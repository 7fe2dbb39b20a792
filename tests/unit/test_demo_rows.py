"""The bundled reviews hold what the demo promises."""

from __future__ import annotations

import csv

from rowmill.cli.demo import bundled


def reviews() -> list[dict[str, str]]:
    with open(bundled() / "reviews.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_there_are_enough_reviews_in_two_languages() -> None:
    rows = reviews()
    assert len(rows) >= 60
    assert sum(row["lang"] == "zh" for row in rows) >= 10
    assert {row["label"] for row in rows} == {"positive", "negative"}
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_reviews_show_that_hard_csv_is_read() -> None:
    texts = [row["text"] for row in reviews()]
    assert any("," in text for text in texts)
    assert any("\n" in text for text in texts)
    assert any('"' in text for text in texts)
    assert any(ord(sign) > 0xFFFF for text in texts for sign in text)
