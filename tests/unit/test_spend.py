"""The budget: reserved at the worst case, settled at the cost, never overdrawn."""

from __future__ import annotations

import heapq
import random

import pytest

from rowmill.core.pricing.budget import Budget


def test_a_request_that_does_not_fit_is_refused_until_another_settles() -> None:
    budget = Budget(1.0)
    assert budget.try_reserve(0.6)
    assert not budget.try_reserve(0.6)
    budget.settle(0.6, 0.1)
    assert budget.try_reserve(0.6)
    assert (budget.spent_usd, budget.reserved_usd) == (0.1, 0.6)


def test_what_was_never_sent_is_given_back() -> None:
    budget = Budget(1.0)
    assert budget.try_reserve(1.0)
    budget.give_back(1.0)
    assert (budget.spent_usd, budget.reserved_usd, budget.unconfirmed_usd) == (0.0, 0.0, 0.0)


def test_a_request_of_unknown_cost_stays_charged_at_its_worst_case() -> None:
    budget = Budget(1.0)
    assert budget.try_reserve(0.7)
    budget.settle(0.7, None)
    assert (budget.spent_usd, budget.unconfirmed_usd) == (0.7, 0.7)
    assert not budget.try_reserve(0.4)


def test_what_earlier_sessions_spent_counts() -> None:
    budget = Budget(1.0, spent_usd=0.8, unconfirmed_usd=0.3)
    assert not budget.try_reserve(0.3)
    assert budget.try_reserve(0.2)
    assert budget.unconfirmed_usd == 0.3


def test_a_request_dearer_than_its_worst_case_is_counted_in_full() -> None:
    budget = Budget(1.0)
    assert budget.try_reserve(0.5)
    budget.settle(0.5, 0.9)
    assert budget.spent_usd == 0.9
    assert not budget.try_reserve(0.2)


@pytest.mark.parametrize(("limit_usd", "worst_usd", "fits"), [(1.0, 0.1, 10), (0.7, 0.07, 10), (0.3, 0.1, 3)])
def test_a_budget_takes_as_many_requests_as_it_divides_into(limit_usd: float, worst_usd: float, fits: int) -> None:
    budget = Budget(limit_usd)
    assert [budget.try_reserve(worst_usd) for _ in range(fits + 1)] == [True] * fits + [False]


def test_a_million_small_requests_leave_no_drift() -> None:
    budget = Budget(1000.0)
    for _ in range(100_000):
        assert budget.try_reserve(0.003)
        budget.settle(0.003, 0.0001)
    assert (budget.spent_usd, budget.reserved_usd) == (10.0, 0.0)


def spend_all(seed: int) -> tuple[float, float]:
    """(spent, highest ever charged) with 64 in flight, jittered latencies, one in twenty without usage."""
    dice = random.Random(seed)
    budget = Budget(1.0)
    in_flight: list[float] = []
    now = highest = paid = 0.0
    while True:
        while len(in_flight) < 64 and budget.try_reserve(0.10):
            heapq.heappush(in_flight, now + dice.lognormvariate(0.0, 1.0))
        highest = max(highest, budget.spent_usd + budget.reserved_usd)
        if not in_flight:
            return paid, highest
        now = heapq.heappop(in_flight)
        cost = dice.choice([0.10, dice.uniform(0.02, 0.10)])
        paid += cost
        budget.settle(0.10, None if dice.random() < 0.05 else cost)


def test_a_budget_of_a_dollar_is_never_overspent_with_64_in_flight() -> None:
    trials = [spend_all(seed) for seed in range(200)]
    assert max(highest for _, highest in trials) <= 1.0
    assert max(paid for paid, _ in trials) <= 1.0 + 1e-9
    assert min(paid for paid, _ in trials) > 0.5
