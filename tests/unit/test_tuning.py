"""When a measurement stops and what it recommends, on made-up servers."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.core.measures.tuning import (
    Advice,
    Measured,
    advise,
    attempts_for,
    ladder,
    next_in_flight,
    rows_of,
    trouble,
    why_ended,
)


def step(in_flight: int, rows_per_s: float, **changes: Any) -> Measured:
    """A step of ten seconds; latency by Little's law."""
    rows = round(rows_per_s * 10)
    latency_s = in_flight / rows_per_s if rows_per_s else None
    made = Measured(in_flight, rows, 10.0, rows, 0, 0, 12 * rows, 8 * rows, latency_s, latency_s, latency_s)
    return made._replace(**changes)


def queueing(in_flight: int, slots: int) -> Measured:
    """A server with slots of half a second each that queues what does not fit."""
    return step(in_flight, min(in_flight, slots) / 0.5)


def steps_with(slots: int, most: int = 500) -> list[Measured]:
    measured: list[Measured] = []
    while (in_flight := next_in_flight(measured, most)) is not None:
        measured.append(queueing(in_flight, slots))
    return measured


def test_the_ladder_ends_at_the_most() -> None:
    assert list(ladder(500)) == [1, 5, 10, 20, 50, 100, 200, 500]
    assert list(ladder(64)) == [1, 5, 10, 20, 50, 64]
    assert list(ladder(1)) == [1]


def test_a_step_has_three_rows_a_slot_and_thirty_at_least() -> None:
    assert (rows_of(1, None), rows_of(50, None), rows_of(50, 8)) == (30, 150, 8)


@pytest.mark.parametrize("slots", [1, 3, 8, 16, 64, 90, 300])
def test_the_slots_of_a_queueing_server_are_found(slots: int) -> None:
    measured = steps_with(slots)
    advice = advise(measured)
    assert advice is not None
    assert slots <= advice.in_flight <= slots * 1.12
    assert len(measured) <= 9


def test_each_step_is_made_once() -> None:
    tried = [made.in_flight for made in steps_with(64)]
    assert len(tried) == len(set(tried))


def test_a_server_that_always_gives_more_is_tried_up_to_the_most() -> None:
    assert [made.in_flight for made in steps_with(10_000, most=100)] == [1, 5, 10, 20, 50, 100]


def test_twice_nothing_gained_is_the_end() -> None:
    assert next_in_flight([step(1, 10), step(5, 10)], 500) == 10
    assert next_in_flight([step(1, 10), step(5, 10), step(10, 10)], 500) is None


def test_one_flat_step_before_a_gain_is_not_the_end() -> None:
    assert next_in_flight([step(1, 10), step(5, 10), step(10, 30)], 500) == 20


def test_throttling_ends_it_and_is_not_recommended() -> None:
    measured = [step(1, 2), step(5, 10), step(10, 20), step(20, 25, throttles=3)]
    assert trouble(measured, measured[-1]) == "throttled"
    assert next_in_flight(measured, 500) is None
    advice = advise(measured)
    assert advice is not None
    assert advice.in_flight == 10


def test_more_failures_end_it() -> None:
    measured = [step(1, 2), step(5, 10), step(10, 20, failures=60)]
    assert trouble(measured, measured[-1]) == "more failures"
    assert next_in_flight(measured, 500) is None


def test_failures_that_were_there_from_the_start_do_not_end_it() -> None:
    measured = [step(1, 10, failures=10), step(5, 50, failures=55)]
    assert next_in_flight(measured, 500) == 10


def test_two_failures_of_thirty_prove_nothing() -> None:
    measured = [step(1, 2), step(5, 3, failures=2)]
    assert next_in_flight(measured, 500) == 10


def test_the_fewest_in_flight_that_reach_about_the_best_are_recommended() -> None:
    assert advise([step(1, 2), step(5, 9.6), step(10, 10)]) == Advice(5, 10, 3)


def test_the_time_limit_is_three_times_the_slowest() -> None:
    advice = advise([step(1, 2, p99_s=4.0), step(5, 9, p99_s=6.1), step(10, 9, p99_s=7.2)])
    assert advice is not None
    assert advice.timeout_s == 22


@pytest.mark.parametrize(("failures", "attempts"), [(0, 3), (20, 3), (200, 6), (999, 10)])
def test_attempts_follow_the_share_of_failures(failures: int, attempts: int) -> None:
    assert attempts_for([step(1, 100, failures=failures)]) == attempts


def test_why_it_ended_is_said() -> None:
    assert why_ended(steps_with(8), 500) == "more in flight brings nothing"
    assert why_ended(steps_with(8, most=5), 5) == "5 in flight were tried, the most allowed (--most)"
    assert why_ended([step(1, 0)], 500) == "nothing was answered at 1 in flight"
    assert why_ended([step(1, 2), step(5, 10, throttles=9)], 500).startswith("throttled at 5 in flight (")


def test_nothing_is_recommended_where_nothing_was_answered() -> None:
    assert advise([]) is None
    assert advise([step(1, 0)]) is None
    assert next_in_flight([step(1, 0)], 500) is None
