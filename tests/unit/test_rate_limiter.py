"""The rate limiter by itself, and in a lane against models of servers that refuse; windows of 6 s stand for minutes."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import BucketQuota, PausingLane, Seen, SlidingQuota

from rowmill.core.limits.rate import QUANTITIES, Limits, Need, RateLimiter, Reservation

WINDOW_S = 6.0
ROWS = [Need(10, 2)] * 600
SETTINGS = [(in_flight, seed) for in_flight in (5, 20, 64) for seed in range(4)]


def refused_share(log: list[Seen], from_s: float = 0.0) -> float:
    seen = [request for request in log if request.at_s >= from_s]
    return sum(not request.accepted for request in seen) / len(seen)


def used_share(log: list[Seen], in_window: float) -> float:
    accepted = [request for request in log if request.accepted]
    return sum(request.amount for request in accepted) / (in_window * accepted[-1].at_s / WINDOW_S)


def used(limiter: RateLimiter, quantity: str, now: float) -> int:
    """What the last window holds of a quantity."""
    limiter._window.advance(now)
    return limiter._window.used[QUANTITIES.index(quantity)]


@pytest.mark.parametrize(("in_flight", "seed"), SETTINGS)
def test_a_stated_request_limit_is_used_without_a_refusal(in_flight: int, seed: int) -> None:
    lane = PausingLane(RateLimiter(Limits(600), window_s=WINDOW_S), SlidingQuota(60, WINDOW_S), in_flight, seed)
    log = lane.run(ROWS)
    assert refused_share(log) == 0.0
    assert used_share(log, 60) >= 0.9


@pytest.mark.parametrize(("in_flight", "seed"), SETTINGS)
def test_a_request_limit_that_only_headers_tell_is_hardly_overrun(in_flight: int, seed: int) -> None:
    limiter = RateLimiter(window_s=WINDOW_S)
    log = PausingLane(limiter, SlidingQuota(60, WINDOW_S), in_flight, seed, announces=Limits(600)).run(ROWS)
    assert refused_share(log) <= 0.02
    assert used_share(log, 60) >= 0.9


@pytest.mark.parametrize(("in_flight", "seed"), SETTINGS)
def test_a_request_limit_that_nobody_tells_is_learned(in_flight: int, seed: int) -> None:
    log = PausingLane(RateLimiter(window_s=WINDOW_S), SlidingQuota(60, WINDOW_S), in_flight, seed).run(ROWS)
    assert refused_share(log, from_s=2 * WINDOW_S) <= 0.05
    assert used_share(log, 60) >= 0.85


@pytest.mark.parametrize("seed", range(4))
def test_a_bucket_that_nobody_tells_of_is_learned_too(seed: int) -> None:
    log = PausingLane(RateLimiter(), BucketQuota(600, 60.0), 20, seed).run(ROWS * 10)
    assert refused_share(log, from_s=120.0) <= 0.05
    assert log[-1].at_s <= 6000 / 10.0 / 0.85


def test_a_server_that_counts_seconds_is_not_held_to_a_minute() -> None:
    log = PausingLane(RateLimiter(), SlidingQuota(20, 1.0), 20, 1).run(ROWS * 4)
    assert log[-1].at_s <= 2400 / 20.0 / 0.4


@pytest.mark.parametrize(("smallest", "largest"), [(0.01, 0.01), (0.01, 0.05), (0.01, 0.1), (0.3, 0.3), (0.9, 0.9)])
@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_token_limit_is_used_without_a_refusal(smallest: float, largest: float, announced: bool, seed: int) -> None:
    chance, limits = Random(seed), Limits(tokens_per_min=100_000)
    needs = [Need(round(10_000 * chance.uniform(smallest, largest))) for _ in range(round(10 / largest) + 40)]
    limiter = RateLimiter(None if announced else limits, window_s=WINDOW_S)
    lane = PausingLane(limiter, SlidingQuota(10_000, WINDOW_S), 4, seed, announces=limits if announced else None)
    log = lane.run(needs, by_tokens=True)
    assert used_share(log, 10_000) >= 0.85
    first_replies_s = 0.5 if announced else 0.0
    assert refused_share(log, from_s=first_replies_s) == 0.0


@pytest.mark.parametrize("largest", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_token_limit_that_nobody_tells_is_learned(largest: float, seed: int) -> None:
    chance = Random(seed)
    needs = [Need(round(10_000 * chance.uniform(0.01, largest))) for _ in range(round(8 / largest) + 200)]
    lane = PausingLane(RateLimiter(window_s=WINDOW_S), SlidingQuota(10_000, WINDOW_S), 20, seed)
    log = lane.run(needs, by_tokens=True)
    assert refused_share(log, from_s=2 * WINDOW_S) <= 0.05
    assert used_share(log, 10_000) >= 0.85


def most_in_a_window(log: list[tuple[float, int]], window_s: float) -> int:
    """The fullest window, counting only windows of more than one need (one may be larger than the limit)."""
    window: deque[tuple[float, int]] = deque()
    total = most = 0
    for at_s, amount in log:
        while window and window[0][0] <= at_s - window_s:
            total -= window.popleft()[1]
        window.append((at_s, amount))
        total += amount
        if len(window) > 1:
            most = max(most, total)
    return most


@given(
    st.lists(st.tuples(st.integers(1, 1500), st.floats(0.0, 5.0)), min_size=1, max_size=150),
    st.sampled_from([0.5, 0.95, 1.0]),
    st.booleans(),
)
def test_no_window_of_reserved_tokens_exceeds_the_limit(
    steps: list[tuple[int, float]], headroom: float, gives_back: bool
) -> None:
    limiter, now = RateLimiter(Limits(tokens_per_min=1000), headroom), 100.0
    log: list[tuple[float, int]] = []
    for number, (tokens, idle_s) in enumerate(steps):
        need, now = Need(tokens), now + idle_s
        while not isinstance(held := limiter.try_reserve(need, now), Reservation):
            assert 0.0 < held <= 63.0
            now += held
        if gives_back and number % 3 == 0:
            limiter.give_back(held, now)
        else:
            log.append((now, tokens))
    assert most_in_a_window(log, 60.0) <= 1000


def test_after_idling_a_second_s_worth_goes_at_once_and_no_more() -> None:
    limiter = RateLimiter(Limits(600), headroom=1.0)
    sent = 0
    while isinstance(limiter.try_reserve(Need(), 5000.0), Reservation):
        sent += 1
    assert sent == 11


def test_a_need_larger_than_the_limit_is_admitted_alone() -> None:
    limiter = RateLimiter(Limits(tokens_per_min=100))
    small = limiter.try_reserve(Need(5), 0.0)
    large = Need(200)
    wait_s = limiter.try_reserve(large, 10.0)
    assert isinstance(small, Reservation)
    assert isinstance(wait_s, float)
    assert isinstance(limiter.try_reserve(large, 10.0 + wait_s), Reservation)
    assert 60.0 <= 10.0 + wait_s <= 63.0
    after_s = limiter.try_reserve(Need(1), 73.0)
    assert isinstance(after_s, float)
    assert 50.0 < after_s <= 63.0


def test_small_needs_do_not_overtake_a_large_one_for_ever() -> None:
    limiter = RateLimiter(Limits(tokens_per_min=1000))
    now, large, admitted_s = 0.0, Need(600), None
    ask_again_s = 0.0
    while now < 300.0 and admitted_s is None:
        now += 0.25
        limiter.try_reserve(Need(5), now)
        if now >= ask_again_s and now > 60.0:
            held = limiter.try_reserve(large, now)
            if isinstance(held, Reservation):
                admitted_s = now
            else:
                ask_again_s = now + held
    assert admitted_s is not None
    assert admitted_s <= 125.0


def test_what_was_not_used_is_given_back_and_what_was_used_more_is_charged() -> None:
    limiter = RateLimiter(Limits(tokens_per_min=10_000))
    held = limiter.try_reserve(Need(1000, 7000), 0.0)
    assert isinstance(held, Reservation)
    limiter.settle(held, 900, 100, 1.0)
    assert used(limiter, "tokens", 1.0) == 1000
    limiter.settle(held, 900, 5100, 1.0)
    assert used(limiter, "tokens", 1.0) == 6000


def test_usage_that_stays_unknown_stays_charged() -> None:
    limiter = RateLimiter(Limits(tokens_per_min=10_000))
    held = limiter.try_reserve(Need(1000, 7000), 0.0)
    assert isinstance(held, Reservation)
    limiter.settle(held, None, None, 1.0)
    assert used(limiter, "tokens", 1.0) == 8000


def test_a_reservation_given_back_frees_its_share_at_once() -> None:
    limiter = RateLimiter(Limits(requests_per_min=1))
    held = limiter.try_reserve(Need(), 0.0)
    assert isinstance(held, Reservation)
    assert isinstance(limiter.try_reserve(Need(), 0.5), float)
    limiter.give_back(held, 0.5)
    assert isinstance(limiter.try_reserve(Need(), 0.5), Reservation)


def test_input_and_output_tokens_are_limited_each_by_itself() -> None:
    limiter = RateLimiter(Limits(input_tokens_per_min=1000, output_tokens_per_min=100))
    assert isinstance(limiter.try_reserve(Need(10, 90), 0.0), Reservation)
    assert isinstance(limiter.try_reserve(Need(10, 50), 1.0), float)
    assert used(limiter, "output tokens", 1.0) == 90


def test_limits_that_are_announced_in_mid_run_count_what_was_sent_before() -> None:
    limiter = RateLimiter()
    for _ in range(10):
        assert isinstance(limiter.try_reserve(Need(), 0.0), Reservation)
    limiter.set_limits(Limits(requests_per_min=10), 1.0)
    wait_s = limiter.try_reserve(Need(), 1.0)
    assert isinstance(wait_s, float)
    assert wait_s >= 59.0


def test_without_any_limit_everything_is_admitted_and_nothing_binds() -> None:
    limiter = RateLimiter()
    assert all(isinstance(limiter.try_reserve(Need(10**9), 0.0), Reservation) for _ in range(1000))
    assert limiter.is_unlimited


def test_what_nothing_limited_counts_as_much_as_was_settled_on_average() -> None:
    limiter = RateLimiter()
    limiter.settle(limiter.count(0.0), 50, 20, 0.0)
    limiter.settle(limiter.count(0.0), 150, 20, 0.0)
    limiter.count(0.0)
    limiter.set_limits(Limits(tokens_per_min=480), 0.0)
    assert not limiter.is_unlimited
    assert isinstance(limiter.try_reserve(Need(100, 20), 10.0), Reservation)
    wait_s = limiter.try_reserve(Need(100, 20), 40.0)
    assert isinstance(wait_s, float)  # 360 tokens were counted, and 120 reserved
    assert 20.0 <= wait_s <= 22.0


def test_what_nothing_limited_and_nobody_settled_counts_as_much_as_was_estimated() -> None:
    limiter = RateLimiter()
    held = limiter.count(0.0, Need(100, 20))
    limiter.set_limits(Limits(tokens_per_min=120), 0.0)
    assert isinstance(limiter.try_reserve(Need(1), 1.0), float)
    limiter.settle(held, 10, 2, 1.0)
    assert used(limiter, "tokens", 1.0) == 12


def test_a_refusal_of_what_nothing_limited_gives_back_what_it_stands_at() -> None:
    limiter = RateLimiter()
    refused, taken = limiter.count(0.0, Need(100, 20)), limiter.count(0.0)
    limiter.throttled(refused, 0.5)
    limiter.settle(taken, 30, 6, 1.0)
    limiter.set_limits(Limits(tokens_per_min=120), 1.0)
    assert used(limiter, "tokens", 1.0) == 36


def test_a_server_that_refuses_all_from_the_start_teaches_nothing() -> None:
    limiter = RateLimiter()
    for n in range(20):
        held = limiter.try_reserve(Need(), n)
        assert isinstance(held, Reservation)
        limiter.throttled(held, n + 0.5)
    assert all(isinstance(limiter.try_reserve(Need(10**6), 20.0), Reservation) for _ in range(1000))


def test_stated_limits_stand_before_announced_ones() -> None:
    assert Limits(requests_per_min=5).or_else(Limits(600, 1000)) == Limits(5, 1000)
