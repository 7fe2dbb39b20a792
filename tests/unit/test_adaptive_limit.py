"""The adaptive limit against models of servers, in virtual time; a latency is 1 s there."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import closed_loop, lognormal, shared_processor

from rowmill.core.limits.concurrency import AdaptiveLimit

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_settles_where_64_slots_are_full_and_the_queue_is_short(seed: int) -> None:
    auto = closed_loop(AdaptiveLimit(), 200, lambda t: 64, lognormal(0.3), seed)
    fixed = closed_loop(64, 200, lambda t: 64, lognormal(0.3), seed)
    best = max(fixed.rate(50, 200), closed_loop(128, 200, lambda t: 64, lognormal(0.3), seed).rate(50, 200))
    assert auto.rate(50, 200) >= 0.95 * best
    assert 64 <= auto.mean_limit(50, 200) <= 96
    assert auto.p95_s(50, 200) <= 1.6 * fixed.p95_s(50, 200)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_follows_slots_that_fall_from_64_to_16_and_rise_again(seed: int) -> None:
    auto = closed_loop(AdaptiveLimit(), 300, lambda t: 16 if 100 <= t < 200 else 64, lognormal(0.3), seed)
    assert auto.first(100, lambda limit: limit <= 28) <= 20
    assert auto.first(200, lambda limit: limit >= 60) <= 50
    assert auto.mean_limit(130, 195) <= 32


@pytest.mark.parametrize("seed", SEEDS)
def test_it_settles_at_the_slots_that_share_a_processor(seed: int) -> None:
    auto = closed_loop(AdaptiveLimit(), 200, lambda t: 8, shared_processor, seed)
    best = max(closed_loop(k, 200, lambda t: 8, shared_processor, seed).rate(30, 200) for k in (4, 8, 12))
    assert auto.rate(30, 200) >= 0.85 * best
    assert 6 <= auto.mean_limit(30, 200) <= 12


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_of_very_different_length_still_fill_the_slots(seed: int) -> None:
    auto = closed_loop(AdaptiveLimit(), 300, lambda t: 64, lognormal(0.6), seed)
    assert auto.rate(60, 300) >= 0.9 * closed_loop(64, 300, lambda t: 64, lognormal(0.6), seed).rate(60, 300)


def test_a_server_without_bounds_is_taken_to_the_maximum() -> None:
    auto = closed_loop(AdaptiveLimit(maximum=256), 60, lambda t: 9999, lognormal(0.3), 1)
    assert [goal.limit for goal in auto.goals] == [8, 16, 32, 64, 128, 256]


def test_a_server_that_refuses_above_64_is_kept_busy_with_few_refusals() -> None:
    auto = closed_loop(AdaptiveLimit(), 300, lambda t: 9999, lognormal(0.3), 1, refuses_above=64)
    assert auto.rate(60, 300) >= 0.75 * closed_loop(64, 300, lambda t: 9999, lognormal(0.3), 1).rate(60, 300)
    assert auto.refused <= 0.02 * len(auto.replies)


def test_answers_that_grow_longer_for_good_are_not_taken_for_a_queue() -> None:
    def longer_from_100_s(active: int, chance: Random, now: float) -> float:
        return math.exp(chance.gauss(0.0, 0.1)) * (3.0 if now >= 100 else 1.0)

    auto = closed_loop(AdaptiveLimit(), 400, lambda t: 64, longer_from_100_s, 1)
    assert auto.rate(200, 400) >= 0.9 * 64 / 3.0
    assert auto.mean_limit(200, 400) >= 60


def test_one_episode_of_refusals_cuts_once() -> None:
    limit = AdaptiveLimit(start=64)
    assert limit.on_throttle(sent_at=1.0, now=2.0)
    assert limit.limit == 48
    assert not any(limit.on_throttle(sent_at=1.0 + n / 100, now=2.1) for n in range(64))
    assert limit.limit == 48
    assert limit.on_throttle(sent_at=2.5, now=3.0)
    assert limit.limit == 36


def test_a_timeout_that_nobody_overtook_halves_once_an_episode() -> None:
    limit = AdaptiveLimit(start=16)
    assert limit.on_timeout(sent_at=0.0, now=120.0)
    assert limit.limit == 8
    assert not any(limit.on_timeout(sent_at=n, now=121.0 + n) for n in range(16))
    assert limit.on_timeout(sent_at=121.0, now=241.0)
    assert limit.limit == 4


def test_a_request_that_hangs_while_later_ones_are_answered_cuts_nothing() -> None:
    limit = AdaptiveLimit(start=16)
    limit.on_success(1.0, sent_at=5.0, in_flight=16, now=6.0)
    assert not limit.on_timeout(sent_at=0.0, now=120.0)
    assert limit.limit == 16


def test_refusals_without_end_walk_down_to_the_minimum_and_success_leads_up_again() -> None:
    limit = AdaptiveLimit(start=64, minimum=2)
    for n in range(1, 40):
        limit.on_throttle(sent_at=n - 50, now=n - 49.5)
    assert limit.limit == 2
    after = closed_loop(limit, 300, lambda t: 9999, lognormal(0.1), 1)
    assert after.goals[-1].limit >= 32


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    limit = AdaptiveLimit(start=20)
    for n in range(2000):
        limit.on_success(1.0, sent_at=n / 10, in_flight=10, now=1 + n / 10)
    assert limit.goal == 20


def test_many_server_errors_stop_growth() -> None:
    limit = AdaptiveLimit(start=20)
    for n in range(2000):
        limit.on_success(1.0, sent_at=n / 20, in_flight=20, now=1 + n / 20)
        if n % 10 == 0:
            limit.on_server_error()
    assert limit.goal == 20


def test_the_limit_rises_by_one_a_reply_and_falls_at_once() -> None:
    limit = AdaptiveLimit(start=16)
    now = 0.0
    while limit.goal == 16:
        now += 0.1
        limit.on_success(1.0, sent_at=now - 1, in_flight=16, now=now)
    assert (limit.limit, limit.goal) == (16, 32)
    limit.on_success(1.0, sent_at=now - 1, in_flight=16, now=now)
    assert limit.limit == 17
    limit.on_throttle(sent_at=now, now=now)
    assert limit.limit <= limit.goal == 24


@given(
    st.lists(
        st.tuples(st.sampled_from(["ok", "throttle", "error", "timeout"]), st.floats(0, 1e4), st.integers(1, 80)),
        max_size=300,
    ),
    st.integers(1, 8),
    st.integers(1, 64),
)
def test_whatever_comes_it_stays_within_its_bounds(
    steps: list[tuple[str, float, int]], minimum: int, maximum: int
) -> None:
    limit, now = AdaptiveLimit(4, minimum, maximum), 0.0
    for kind, latency_s, in_flight in steps * 3:
        now += latency_s / max(in_flight, 1)
        if kind == "ok":
            limit.on_success(latency_s, now - latency_s, in_flight, now)
        elif kind == "throttle":
            limit.on_throttle(now - latency_s, now)
        elif kind == "timeout":
            limit.on_timeout(now - latency_s, now)
        else:
            limit.on_server_error()
        assert limit.minimum <= limit.limit <= limit.goal <= limit.maximum
        assert math.isfinite(limit.limit)
