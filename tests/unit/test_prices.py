"""What tokens cost: stated and bundled prices, tiers, the unknown and the implausible."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.pricing.prices import Price, PriceSpec, Rates, implausible, price_of
from rowmill.records import NO_USAGE, Usage

TODAY = date(2026, 11, 1)
STATED = PriceSpec(input=2.5, output=10.0, cached_input=1.25, cache_write=3.0, reasoning=20.0)


def stated(spec: PriceSpec) -> Price:
    price = price_of("any", None, spec, today=TODAY)
    assert price is not None
    return price


def test_cached_tokens_are_paid_at_the_cached_price() -> None:
    cost = stated(STATED).cost(Usage(262_960, 0, cached_input_tokens=257_955))
    assert cost == pytest.approx((5_005 * 2.5 + 257_955 * 1.25) / 1e6)


def test_every_kind_of_token_has_its_own_price() -> None:
    cost = stated(STATED).cost(Usage(1000, 500, 200, 300, 100))
    assert cost == pytest.approx((500 * 2.5 + 200 * 1.25 + 300 * 3.0 + 400 * 10.0 + 100 * 20.0) / 1e6)


def test_kinds_without_a_price_of_their_own_cost_as_much_as_their_like() -> None:
    cost = stated(PriceSpec(2.5, 10.0)).cost(Usage(1000, 500, 200, 300, 100))
    assert cost == pytest.approx((1000 * 2.5 + 500 * 10.0) / 1e6)


def test_more_cached_tokens_than_tokens_never_make_a_cost_negative() -> None:
    assert stated(STATED).cost(Usage(10, 0, 1_000_000, 1_000_000)) == pytest.approx(10 * 1.25 / 1e6)


@pytest.mark.parametrize("usage", [NO_USAGE, Usage(10, None), Usage(None, 10)])
def test_unknown_tokens_have_an_unknown_cost(usage: Usage) -> None:
    assert stated(STATED).cost(usage) is None


def test_what_is_free_costs_nothing_even_when_its_tokens_are_unknown() -> None:
    assert stated(PriceSpec(0.0, 0.0)).cost(NO_USAGE) == 0.0


@pytest.mark.parametrize(("unit", "size"), [("1M", 1e6), ("1K", 1e3), ("token", 1.0)])
def test_a_price_is_for_its_unit(unit: str, size: float) -> None:
    spec = PriceSpec(2.5, 10.0, unit=unit)  # type: ignore[arg-type]
    assert stated(spec).cost(Usage(3, 2)) == pytest.approx((3 * 2.5 + 2 * 10.0) / size)


def test_batch_processing_pays_its_share() -> None:
    spec = PriceSpec(2.0, 8.0, batch=0.5)
    price = price_of("any", None, spec, today=TODAY, context={"processing": "batch"})
    assert price is not None
    assert price.cost(Usage(1_000_000, 1_000_000)) == pytest.approx(5.0)
    assert stated(spec).cost(Usage(1_000_000, 1_000_000)) == pytest.approx(10.0)


def test_a_large_input_pays_its_tier_for_all_tokens() -> None:
    dear, cheap = Rates(2.0, 2.0, 2.0, 4.0, 4.0), Rates(1.0, 1.0, 1.0, 2.0, 2.0)
    price = Price(((0, cheap), (100, dear)), "")
    assert price.cost(Usage(100, 1)) == 102.0
    assert price.cost(Usage(101, 1)) == 206.0


def test_the_worst_case_takes_a_token_a_byte_at_the_dearest_rates_in_reach() -> None:
    cheap, dear = Rates(1.0, 0.5, 1.5, 2.0, 3.0), Rates(0.5, 0.5, 0.5, 9.0, 9.0)
    price = Price(((0, cheap), (100, dear)), "", per_request_usd=7.0)
    assert price.worst_case(100, 10) == 7.0 + 100 * 1.5 + 10 * 3.0
    assert price.worst_case(101, 10) == 7.0 + 101 * 1.5 + 10 * 9.0


rate = st.floats(0, 10)
rates = st.builds(Rates, rate, rate, rate, rate, rate, cache_write_1h=rate)


@given(rates, rates, st.integers(0, 300), st.integers(0, 300), st.data())
def test_no_request_costs_more_than_its_worst_case(
    low: Rates, high: Rates, size: int, most: int, draw: st.DataObject
) -> None:
    price = Price(((0, low), (100, high)), "")
    input_tokens, output_tokens = draw.draw(st.integers(0, size)), draw.draw(st.integers(0, most))
    cached, written = draw.draw(st.integers(0, 300)), draw.draw(st.integers(0, 300))
    usage = Usage(input_tokens, output_tokens, cached, written, draw.draw(st.integers(0, 300)))
    cost = price.cost(usage)
    assert cost is not None
    assert 0 <= cost <= price.worst_case(size, most) * (1 + 1e-9) + 1e-9


def test_a_known_model_has_its_bundled_prices() -> None:
    price = price_of("gpt-4o-mini", "openai", today=TODAY)
    assert price is not None
    assert price.cost(Usage(1_000_000, 1_000_000, 500_000)) == pytest.approx(0.075 + 0.0375 + 0.6)


def test_bundled_tiers_depend_on_the_size_of_the_input() -> None:
    price = price_of("gemini-2.5-pro", "gemini", today=TODAY)
    assert price is not None
    assert price.cost(Usage(200_000, 0)) == pytest.approx(0.25)
    assert price.cost(Usage(300_000, 1000)) == pytest.approx(0.75 + 0.015)


def test_bundled_batch_prices_are_found_by_context() -> None:
    price = price_of("gpt-4o-mini", "openai", today=TODAY, context={"processing": "batch"})
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(0.075)


def test_of_prices_by_the_hour_the_dearest_counts() -> None:
    price = price_of("deepseek-reasoner", "deepseek", today=TODAY)
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(0.55)


def test_a_fee_for_each_request_counts_too() -> None:
    price = price_of("sonar", "perplexity", today=TODAY)
    assert price is not None
    fee = price.cost(Usage(0, 0))
    assert fee is not None
    assert fee > 0.001


def test_a_stated_price_goes_before_the_bundled_one() -> None:
    price = price_of("gpt-4o-mini", "openai", PriceSpec(1.0, 1.0), today=TODAY)
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(1.0)
    assert price.source == "stated in the job"


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("no-such-model", "openai"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "vllm"),
        ("gpt-4o-mini", None),
        ("no-such-embedding", "openai"),
    ],
)
def test_a_price_that_is_not_known_is_unknown(model: str, preset: str | None) -> None:
    assert price_of(model, preset, today=TODAY) is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (PriceSpec(2.5, 10.0, unit="token"), "2,500,000 USD for a million tokens"),
        (PriceSpec(2.5, 10.0, unit="1K"), "2,500 USD for a million tokens"),
        (PriceSpec(0.0000025, 0.00001), "next to nothing"),
        (PriceSpec(2.5, 10.0, cached_input=25.0), "cached_input of 25 is above"),
    ],
)
def test_an_implausible_price_is_flagged(spec: PriceSpec, words: str) -> None:
    assert words in (implausible(spec) or "")


@pytest.mark.parametrize(
    "spec", [STATED, PriceSpec(0.0, 0.0), PriceSpec(150.0, 600.0), PriceSpec(2.5e-6, 1e-5, unit="token")]
)
def test_a_plausible_price_is_not_flagged(spec: PriceSpec) -> None:
    assert implausible(spec) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"input": -1.0}, "input must be 0 or more"),
        ({"output": float("nan")}, "output must be 0 or more"),
        ({"batch": 50.0}, "batch is the share"),
        ({"unit": "1k"}, "unit must be one of 1M, 1K, token"),
    ],
)
def test_a_price_that_cannot_be_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PriceSpec(**{"input": 1.0, "output": 1.0, **wrong})  # type: ignore[arg-type]


def test_what_is_kept_for_an_hour_costs_twice_the_input_and_not_more_than_was_written() -> None:
    price = price_of("claude-sonnet-4-6", "anthropic", today=TODAY)
    assert price is not None
    assert price.cost(Usage(1000, 0, 0, 1000)) == pytest.approx(1000 * 3.75 / 1e6)
    assert price.cost(Usage(1000, 0, 0, 1000, cache_write_1h_tokens=400)) == pytest.approx(
        (600 * 3.75 + 400 * 6.0) / 1e6
    )
    assert price.cost(Usage(1000, 0, 0, 1000, cache_write_1h_tokens=4000)) == pytest.approx(1000 * 6.0 / 1e6)


def test_the_worst_case_of_a_cache_that_is_kept_for_an_hour_is_twice_the_input() -> None:
    price = price_of("claude-sonnet-4-6", "anthropic", today=TODAY)
    assert price is not None
    assert price.worst_case(1_000_000, 0) == pytest.approx(3.75)
    assert price.worst_case(1_000_000, 0, keeps_1h=True) == pytest.approx(6.0)


def test_a_stated_price_of_a_cache_write_says_what_an_hour_costs() -> None:
    usage = Usage(1_000_000, 0, 0, 1_000_000, cache_write_1h_tokens=1_000_000)
    assert stated(PriceSpec(1.0, 0.0, cache_write=1.25)).cost(usage) == pytest.approx(2.0)
    assert stated(PriceSpec(1.0, 0.0, cache_write=1.25, cache_write_1h=3.0)).cost(usage) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("model", "preset", "usd"),
    [
        ("text-embedding-3-small", "openai", 0.02),
        ("gemini-embedding-001", "gemini", 0.15),
        ("voyage-3.5", "voyageai", 0.06),
    ],
)
def test_embedding_models_have_a_price_and_their_output_costs_nothing(model: str, preset: str, usd: float) -> None:
    price = price_of(model, preset, today=TODAY)
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(usd)
    assert price.worst_case(1_000_000, 1_000) == pytest.approx(usd)


def test_a_model_whose_output_has_no_price_and_that_writes_text_has_none() -> None:
    assert price_of("pplx-decider-v1.2", "perplexity", today=TODAY) is None
