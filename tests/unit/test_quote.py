"""Quotes: the true cost lies in the interval, and what is not known is not made up."""

from __future__ import annotations

import json
import math
import random

import pytest

from rowmill.core.pricing.quote import Estimate, Lengths, Pace, Sampled, quote

PACE = Pace(in_flight=10)


def lengths_of(values: list[int]) -> Lengths:
    lengths = Lengths()
    for value in values:
        lengths.add(value)
    return lengths


def sampled(length: int, cost: float | None = None, seconds: float | None = 1.0) -> Sampled:
    return Sampled(length, length // 4, 20, cost, seconds, True)


class Population:
    """Rows whose input and output lengths are lognormal with sigma 1.0; `tied` is how far they go together."""

    def __init__(self, seed: int, rows: int, tied: float) -> None:
        dice = random.Random(seed)
        apart = math.sqrt(1 - tied * tied)
        self.lengths, self.costs = Lengths(), []
        self.bytes: list[int] = []
        for _ in range(rows):
            z = dice.gauss()
            length = int(math.exp(6 + z)) + 1
            input_tokens = round(length / 4 * dice.uniform(0.8, 1.2))
            output_tokens = round(math.exp(4 + tied * z + apart * dice.gauss()))
            self.bytes.append(length)
            self.costs.append(input_tokens * 2.5e-6 + output_tokens * 10e-6)
            self.lengths.add(length)
        self.true_cost = math.fsum(self.costs)

    def quoted(self, seed: int, size: int) -> Estimate:
        indices = random.Random(seed).sample(range(len(self.costs)), size)
        found = quote(self.lengths, [sampled(self.bytes[at], self.costs[at]) for at in indices], PACE)
        assert found.cost_usd is not None
        return found.cost_usd

    def hits(self, seeds: range, size: int) -> int:
        quotes = [self.quoted(seed, size) for seed in seeds]
        return sum(one.low <= self.true_cost <= one.high for one in quotes)


@pytest.mark.parametrize("tied", [0.0, 0.7])
@pytest.mark.slow
def test_the_true_cost_of_heavy_tailed_rows_lies_in_the_interval(tied: float) -> None:
    hits = 0
    for seed in range(4):
        population = Population(seed, 100_000, tied)
        hits += population.hits(range(seed * 50, seed * 50 + 50), 1000)
    assert hits >= 180


def test_a_small_sample_still_holds_what_its_interval_says() -> None:
    population = Population(1, 20_000, 0.5)
    assert population.hits(range(200), 100) >= 180


def test_an_interval_is_not_wider_than_it_must_be() -> None:
    found = Population(2, 100_000, 0.7).quoted(0, 1000)
    assert (found.high - found.low) / found.value < 0.2


def test_a_cost_that_follows_the_length_is_known_from_the_lengths() -> None:
    everything = [10 * at for at in range(1, 1001)]
    sample = [sampled(length, length * 0.001) for length in everything[::50]]
    found = quote(lengths_of(everything), sample, PACE).cost_usd
    assert found is not None
    assert found.value == pytest.approx(sum(everything) * 0.001)
    assert found.high - found.low == pytest.approx(0.0, abs=1e-6)


def test_a_sample_of_everything_leaves_no_doubt_and_no_rest() -> None:
    everything = [5, 50, 500, 5000]
    costs = [0.3, 0.1, 0.9, 0.2]
    sample = [sampled(length, cost) for length, cost in zip(everything, costs, strict=True)]
    found = quote(lengths_of(everything), sample, PACE)
    assert found.cost_usd == pytest.approx((1.5, 1.5, 1.5))
    assert found.rest_cost_usd == pytest.approx((0.0, 0.0, 0.0))
    assert found.rest_seconds == (0.0, 0.0, 0.0)


def test_the_rest_is_the_total_without_the_pilot() -> None:
    sample = [sampled(100, 0.1 + at % 3) for at in range(30)]
    found = quote(lengths_of([100] * 300), sample, PACE)
    assert found.cost_usd is not None
    assert found.rest_cost_usd is not None
    assert found.cost_usd.value - found.rest_cost_usd.value == pytest.approx(sum(row.cost_usd or 0 for row in sample))


def test_a_total_is_never_below_what_the_pilot_has_cost() -> None:
    sample = [sampled(1, 0.0), sampled(1, 100.0), sampled(1, 0.0)]
    found = quote(lengths_of([1] * 10), sample, PACE).cost_usd
    assert found is not None
    assert found.low == 100.0


def test_rows_of_unknown_cost_are_counted_and_the_others_stand_in() -> None:
    sample = [sampled(100, 0.5), sampled(100, None), sampled(100, 0.5)]
    found = quote(lengths_of([100] * 300), sample, PACE)
    assert found.unknown_costs == 1
    assert found.cost_usd == pytest.approx((150.0, 150.0, 150.0))


@pytest.mark.parametrize("costs", [[], [0.5], [None, None, None]])
def test_a_cost_that_the_sample_does_not_tell_is_unknown(costs: list[float | None]) -> None:
    found = quote(lengths_of([100] * 300), [sampled(100, cost) for cost in costs], PACE)
    assert found.cost_usd is None
    assert found.rest_cost_usd is None


def test_time_is_time_in_flight_over_slots() -> None:
    sample = [sampled(100, seconds=2.0) for _ in range(100)]
    found = quote(lengths_of([100] * 1100), sample, PACE)
    assert found.rest_seconds == pytest.approx((200.0, 200.0, 200.0))


@pytest.mark.parametrize(
    ("pace", "seconds"),
    [(Pace(10, requests_per_min=60), 1000.0), (Pace(10, tokens_per_min=4500), 600.0), (Pace(100_000), 2.0)],
)
def test_time_is_bounded_by_rates_and_by_one_request(pace: Pace, seconds: float) -> None:
    sample = [sampled(100, seconds=2.0) for _ in range(100)]
    found = quote(lengths_of([100] * 1100), sample, pace)
    assert found.rest_seconds == pytest.approx((seconds, seconds, seconds))


def test_the_spread_of_tokens_is_that_of_all_rows_not_of_the_sample() -> None:
    everything = [4 * at for at in range(1, 1001)]
    sample = [sampled(length) for length in everything[400:600:4]]
    found = quote(lengths_of(everything), sample, PACE)
    assert found.input_tokens is not None
    assert found.input_tokens.mean == pytest.approx(500.5)
    assert found.input_tokens.deviation == pytest.approx(288.7, rel=0.01)


def test_a_success_rate_of_one_is_not_certain() -> None:
    sample = [sampled(100, 0.1) for _ in range(20)]
    found = quote(lengths_of([100] * 300), sample, PACE).success_rate
    assert found == pytest.approx((1.0, 0.8389, 1.0), abs=1e-4)


def test_a_quote_is_json() -> None:
    sample = [sampled(100 + at, 0.1) for at in range(20)]
    found = json.loads(json.dumps(quote(lengths_of(list(range(300))), sample, PACE).object()))
    assert found["rows"] == 300
    assert set(found["rest_cost_usd"]) == {"value", "low", "high"}
    assert set(found["input_tokens"]) == {"mean", "deviation"}
