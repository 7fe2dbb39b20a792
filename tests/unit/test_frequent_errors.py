"""Errors alike but for what is one row's own are one."""

from __future__ import annotations

from rowmill.core.measures.frequent_errors import frequent_errors


def test_messages_that_differ_in_ids_figures_and_quotations_are_one_kind() -> None:
    found = frequent_errors(
        [
            ("HTTP 400: request req-77a1 has 5000 tokens, 4096 allowed", 3),
            ("HTTP 400: request req-93bc has 6000 tokens, 4096 allowed", 4),
            ("label: 'maybe' is none of yes, no", 2),
            ("label: 'perhaps' is none of yes, no", 2),
            ("the reply is empty", 1),
            ("once", 1),
        ]
    )
    assert found == [
        ("HTTP 400: request req-93bc has 6000 tokens, 4096 allowed", 7),
        ("label: 'maybe' is none of yes, no", 4),
        ("the reply is empty", 1),
    ]


def test_no_errors_are_none() -> None:
    assert frequent_errors([]) == []
