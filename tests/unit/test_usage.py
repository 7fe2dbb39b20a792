"""Reported tokens count only as far as they can be true."""

from __future__ import annotations

import pytest

from rowmill.core.limits.gcra import Schedule
from rowmill.core.replies.usage import MOST_TOKENS, judged
from rowmill.records import NO_USAGE, Usage


def test_reasoning_beside_the_output_is_counted_by_the_total() -> None:
    told = Usage(32, 9, reasoning_tokens=94)
    assert judged(told, 135, has_text=True).output_tokens == 103


def test_reasoning_within_the_output_is_not_counted_twice() -> None:
    assert judged(Usage(32, 103, reasoning_tokens=94), 135, has_text=True).output_tokens == 103


def test_a_total_below_its_parts_makes_all_of_it_unknown() -> None:
    assert judged(Usage(32, 9), 40, has_text=True) == NO_USAGE
    assert judged(Usage(32, 9, reasoning_tokens=94), 41, has_text=True) == NO_USAGE


def test_more_reasoning_than_output_without_a_total_leaves_the_output_unknown() -> None:
    assert judged(Usage(32, 9, reasoning_tokens=94), has_text=True).output_tokens is None


@pytest.mark.parametrize(("asked", "said"), [(0, 0), (0, 5), (5, 0)])
def test_zero_beside_a_text_is_no_count(asked: int, said: int) -> None:
    usage = judged(Usage(asked, said), asked + said, has_text=True)
    assert usage.input_tokens == (asked or None)
    assert usage.output_tokens == (said or None)


def test_zero_output_without_a_text_is_a_count() -> None:
    assert judged(Usage(5, 0), 5, has_text=False) == Usage(5, 0)


@pytest.mark.parametrize("odd", [-1, MOST_TOKENS + 1, 10**20])
def test_a_number_that_cannot_be_one_is_unknown(odd: int) -> None:
    assert judged(Usage(odd, 5), has_text=True).input_tokens is None
    assert judged(Usage(5, odd), has_text=True).output_tokens is None


def test_more_from_the_cache_than_the_input_leaves_the_input_unknown() -> None:
    assert judged(Usage(10, 5, cached_input_tokens=11), has_text=True).input_tokens is None


def test_an_over_reported_usage_holds_a_lane_up_for_a_window_at_most() -> None:
    schedule = Schedule(60.0, 1.0)
    schedule.set_rates(10.0, float("inf"), 0.0)
    schedule.take(5, 0.0)
    schedule.correct(90_000_000, 0.0)
    assert schedule.wait_s(1, 0, 0.0) <= 60.0
