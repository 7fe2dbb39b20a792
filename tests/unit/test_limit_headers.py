"""Announced limits in every dialect."""

from __future__ import annotations

import pytest

from rowmill.core.limits.rate import Limits
from rowmill.core.limits.ratelimit_headers import Announcements, Remaining, announced

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT

OPENAI = {
    "x-ratelimit-limit-requests": "5000",
    "x-ratelimit-remaining-requests": "4999",
    "x-ratelimit-reset-requests": "12ms",
    "x-ratelimit-limit-tokens": "160000",
    "x-ratelimit-remaining-tokens": "159976",
    "x-ratelimit-reset-tokens": "9ms",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:21Z",
    "anthropic-ratelimit-tokens-limit": "48000",
    "anthropic-ratelimit-tokens-remaining": "48000",
    "anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:20Z",
    "anthropic-ratelimit-input-tokens-limit": "40000",
    "anthropic-ratelimit-input-tokens-remaining": "39000",
    "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:22Z",
    "anthropic-ratelimit-output-tokens-limit": "8000",
    "anthropic-ratelimit-output-tokens-remaining": "8000",
    "anthropic-ratelimit-output-tokens-reset": "2023-11-14T22:13:20Z",
}
GROQ = {
    "x-ratelimit-limit-requests": "14400",
    "x-ratelimit-remaining-requests": "14370",
    "x-ratelimit-reset-requests": "2m59.56s",
    "x-ratelimit-limit-tokens": "18000",
    "x-ratelimit-remaining-tokens": "17997",
    "x-ratelimit-reset-tokens": "7.66s",
}
AZURE = {
    "x-ratelimit-limit-requests": "120",
    "x-ratelimit-remaining-requests": "19",
    "x-ratelimit-limit-tokens": "20000",
    "x-ratelimit-remaining-tokens": "19913",
}


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (OPENAI, Limits(5000, 160_000)),
        (ANTHROPIC, Limits(50, None, 40_000, 8000)),
        (GROQ, Limits(None, 18_000)),
        (AZURE, Limits(120, 20_000)),
        ({"x-ratelimit-limit-tokens-prompt": "60000", "x-ratelimit-limit-tokens-generated": "6000"},
         Limits(None, None, 60_000, 6000)),
        ({"x-ratelimit-limit-requests-day": "14400", "x-ratelimit-limit-tokens-minute": "60000"}, Limits(None, 60_000)),
        ({"ratelimit-limit": "100", "ratelimit-policy": "100;w=60"}, Limits(100)),
        ({"ratelimit-limit": "10, 10;w=1, 1000;w=3600"}, Limits(600)),
        ({"ratelimit-policy": '"default";q=100;w=60', "ratelimit": '"default";r=50;t=30'}, Limits(100)),
    ],
)  # fmt: skip
def test_every_dialect_is_read(headers: dict[str, str], limits: Limits) -> None:
    found = announced(headers, NOW)
    assert found is not None
    assert found.limits == limits


def test_what_is_left_is_read_with_the_limits() -> None:
    found = announced(OPENAI, NOW)
    assert found is not None
    assert found.remaining == Remaining(4999, 159_976)


def test_anthropic_s_combined_limit_counts_where_it_is_the_only_one() -> None:
    combined = {name: value for name, value in ANTHROPIC.items() if "put-tokens" not in name}
    found = announced(combined, NOW)
    assert found is not None
    assert found.limits == Limits(50, 48_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"x-ratelimit-remaining-requests": "14399", "x-ratelimit-reset-requests": "6s"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "23h59m0s"},
        {"x-groq-region": "us", "x-ratelimit-remaining-requests": "14400", "x-ratelimit-reset-requests": "0s"},
    ],
)
def test_groq_s_requests_a_day_are_never_read_as_a_minute_s(changes: dict[str, str]) -> None:
    found = announced({**GROQ, **changes}, NOW)
    assert found is not None
    assert found.limits == Limits(None, 18_000)


def test_the_preset_s_dialect_is_enough_to_tell_groq() -> None:
    assert announced({"x-ratelimit-limit-requests": "1000"}, NOW, dialect="groq") is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json", "date": "Tue, 14 Nov 2023 22:13:20 GMT"},
        {"x-ratelimit-limit": "1000"},
        {"ratelimit-limit": "1000", "ratelimit-policy": "1000;w=3600"},
        {"ratelimit-limit": "1000", "ratelimit-policy": "1000;w=0"},
        {"x-ratelimit-limit-requests": "0"},
        {"x-ratelimit-limit-requests": "-1", "x-ratelimit-limit-tokens": "many"},
        {"x-ratelimit-limit-requests": "200", "x-ratelimit-reset-requests": "7m12s"},
        {"ratelimit-policy": "nonsense", "ratelimit": ""},
    ],
)
def test_what_is_no_limit_a_minute_is_left_out(headers: dict[str, str]) -> None:
    assert announced(headers, NOW) is None


def test_only_changes_are_told() -> None:
    announcements = Announcements()
    assert announcements.changed({}, NOW) is None
    assert announcements.changed(OPENAI, NOW) == Limits(5000, 160_000)
    assert announcements.changed({**OPENAI, "x-ratelimit-remaining-requests": "3"}, NOW) is None
    assert announcements.changed({}, NOW) is None
    assert announcements.changed(OPENAI, NOW) is None
    assert announcements.changed({**OPENAI, "x-ratelimit-limit-requests": "9"}, NOW) == Limits(9, 160_000)
