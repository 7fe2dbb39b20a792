"""Retry-After and reset headers in all their forms."""

from __future__ import annotations

import pytest

from rowmill.core.limits.retry_after import asked_wait_s, parse_wait_s, retry_after_s

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60.0),
        ("0", 0.0),
        ("0.503", 0.503),
        (" 3 ", 3.0),
        ("6m0s", 360.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("7.66s", 7.66),
        ("1h2m3s", 3723.0),
        ("2023-11-14T22:13:27Z", 7.0),
        ("2023-11-14T23:13:27+01:00", 7.0),
        ("Tue, 14 Nov 2023 22:13:27 GMT", 7.0),
        ("1700000007", 7.0),
        ("1700000007500", 7.5),
    ],
)
def test_every_form_of_a_wait_is_understood(text: str, seconds: float) -> None:
    assert parse_wait_s(text, NOW) == pytest.approx(seconds, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-3",
        "soon",
        "nan",
        "inf",
        "1e3",
        "5 minutes",
        "Tue, 14 Nov 2023 22:13:10 GMT",
        "Tue, 99 Nov 2023 22:13:10 GMT",
        "9" * 40,
        "99999999",
    ],
)
def test_nonsense_the_past_and_whole_months_are_ignored(text: str) -> None:
    assert parse_wait_s(text, NOW) is None


def test_milliseconds_go_before_seconds() -> None:
    assert retry_after_s({"retry-after-ms": "750", "retry-after": "1"}, NOW) == 0.75


def test_nonsense_in_milliseconds_leaves_the_seconds() -> None:
    assert retry_after_s({"retry-after-ms": "-1", "retry-after": "2"}, NOW) == 2.0


def test_a_date_is_meant_by_the_servers_clock() -> None:
    headers = {"date": "Tue, 14 Nov 2023 21:00:00 GMT", "retry-after": "Tue, 14 Nov 2023 21:00:09 GMT"}
    assert retry_after_s(headers, NOW) == 9.0


def test_without_retry_after_the_largest_reset_counts() -> None:
    headers = {"x-ratelimit-reset-requests": "500ms", "x-ratelimit-reset-tokens": "6m0s"}
    assert asked_wait_s(headers, NOW) == 360.0


def test_the_reset_of_a_used_up_limit_goes_before_others() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "14000",
        "x-ratelimit-reset-requests": "1h10m0s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "7.66s",
    }
    assert asked_wait_s(headers, NOW) == 7.66


def test_anthropic_and_standard_names_are_known() -> None:
    assert asked_wait_s({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:50Z"}, NOW) == 30.0
    assert asked_wait_s({"ratelimit-reset": "12"}, NOW) == 12.0


def test_a_server_that_says_nothing_asks_for_nothing() -> None:
    assert asked_wait_s({"content-type": "application/json", "x-ratelimit-reset-tokens": "-1"}, NOW) is None
