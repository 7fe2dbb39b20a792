"""Tokens estimated from bytes and from what was seen."""

from __future__ import annotations

from random import Random

from rowmill.core.limits.token_estimate import SAMPLES_BEFORE_PERCENTILE, UNKNOWN_OUTPUT_TOKENS, TokenEstimate


def test_before_any_reply_the_input_is_rather_over_than_underestimated() -> None:
    assert 100 <= TokenEstimate().need(400, 10).input_tokens <= 200


def test_the_ratio_follows_what_replies_report_and_stays_a_little_above() -> None:
    estimate, chance = TokenEstimate(), Random(1)
    for _ in range(300):
        size = chance.randint(200, 4000)
        estimate.observe(size, round(size / 4.5 * chance.uniform(0.9, 1.1)), 5)
    assert 1000 <= estimate.need(4500, 10).input_tokens <= 1150


def test_the_ratio_follows_a_change_of_language() -> None:
    estimate = TokenEstimate()
    for _ in range(300):
        estimate.observe(1000, 220, 5)
    for _ in range(200):
        estimate.observe(1000, 400, 5)
    assert estimate.need(1000, 10).input_tokens >= 390


def test_a_reply_without_usage_changes_nothing() -> None:
    estimate = TokenEstimate()
    before = estimate.need(400, None)
    estimate.observe(400, None, None)
    estimate.observe(400, 0, None)
    assert estimate.need(400, None) == before


def test_max_tokens_is_reserved_until_thirty_replies_were_seen_then_their_90th_percentile() -> None:
    estimate = TokenEstimate()
    for n in range(SAMPLES_BEFORE_PERCENTILE - 1):
        estimate.observe(100, 25, n)
    assert estimate.need(100, 4096).output_tokens == 4096
    estimate.observe(100, 25, 29)
    assert estimate.need(100, 4096).output_tokens == 26
    assert estimate.need(100, 16).output_tokens == 16


def test_where_the_provider_counts_max_tokens_it_is_reserved_always() -> None:
    estimate = TokenEstimate(counts_max_tokens=True)
    for _ in range(100):
        estimate.observe(100, 25, 3)
    assert estimate.need(100, 4096).output_tokens == 4096
    assert estimate.need(100, None).output_tokens == 3


def test_a_guess_stays_far_below_the_limit() -> None:
    assert TokenEstimate().need(100, None).output_tokens == UNKNOWN_OUTPUT_TOKENS
    assert TokenEstimate().need(100, None, most_tokens=1000).output_tokens == 100


def test_the_percentile_follows_what_was_seen_last() -> None:
    estimate = TokenEstimate()
    for tokens in [10] * 300 + [500] * 300:
        estimate.observe(100, 25, tokens)
    assert estimate.need(100, None).output_tokens == 500
