"""Which endpoints have a known price, and what a budget needs to know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from rowmill.engine.rate_gate import request_max_tokens
from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.records import Message, Request, Usage
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.pricing import answer_limit, odd_prices, priced, worst_case_of

TODAY = date(2026, 11, 1)


def job(model: str, *, params: dict[str, Any] | None = None, budget_usd: float | None = None, **endpoint: Any) -> Job:
    return Job.model_validate(
        {
            "source": "in.csv",
            "prompt": "{{ text }}",
            "endpoints": [{"model": model, **endpoint}],
            "params": params or {},
            "budget_usd": budget_usd,
        }
    )


def price_of(made: Job) -> Any:
    [endpoint] = priced(made, resolve_endpoints(made), TODAY)
    return endpoint.price


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")


def test_a_known_model_at_its_own_provider_has_its_price() -> None:
    price = price_of(job("openai/gpt-4o-mini"))
    assert price.source == "genai-prices: openai/gpt-4o-mini"
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("openai/gpt-4o-mini", "http://127.0.0.1:1/v1"),
        ("vllm/gpt-4o-mini", None),
        ("ollama/llama3", None),
        ("local/smollm2", None),
        ("gpt-4o-mini", "http://127.0.0.1:1/v1"),
        ("openai/no-such-model", None),
    ],
)
def test_a_server_of_ones_own_and_an_unknown_model_have_no_known_price(model: str, url: str | None) -> None:
    assert price_of(job(model, url=url)) is None


def test_a_stated_price_goes_before_the_known_one() -> None:
    price = price_of(job("openai/gpt-4o-mini", price={"input": 7, "output": 8}))
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(7)


def test_a_budget_names_all_that_it_lacks() -> None:
    made = job("vllm/m", budget_usd=1.0, price=None)
    with pytest.raises(JobError) as caught:
        priced(made, resolve_endpoints(made), TODAY)
    assert [fault.split(";")[0] for fault in caught.value.faults] == [
        "budget_usd: the price of vllm/m is unknown",
        "budget_usd: vllm/m needs a limit on the tokens of an answer",
    ]


def test_a_budget_with_a_price_and_a_limit_is_accepted() -> None:
    made = job("vllm/m", budget_usd=1.0, params={"max_tokens": 5}, price={"input": 0, "output": 1})
    assert price_of(made) is not None


def test_the_larger_of_two_limits_of_tokens_counts() -> None:
    made = job("vllm/m", params={"max_tokens": 5, "max_completion_tokens": 9})
    [endpoint] = resolve_endpoints(made)
    assert answer_limit(made, endpoint) == 9


def test_the_worst_case_is_a_token_a_byte_and_all_of_the_output() -> None:
    worst = worst_of({"max_tokens": 100})
    assert worst(Request([Message("user", "x")], {})) == pytest.approx((2000 + 1000) / 1e6)


def test_the_worst_case_of_a_limit_that_depends_on_the_row_is_that_rows() -> None:
    worst = worst_of({"max_tokens": "{{ n }}"})
    assert worst(Request([Message("user", "x")], {"max_tokens": 7})) == pytest.approx((2000 + 70) / 1e6)


def worst_of(params: dict[str, Any]) -> Callable[[Request], float]:
    made = job("vllm/m", params=params, price={"input": 1, "output": 10}, budget_usd=1.0)
    [endpoint] = priced(made, resolve_endpoints(made), TODAY)
    worst = worst_case_of(made, endpoint, lambda request: b"x" * 2000)
    assert worst is not None
    return worst


def test_an_odd_price_is_told_with_its_endpoint() -> None:
    made = job("vllm/m", price={"input": 2.5, "output": 10, "unit": "token"})
    [words] = odd_prices(resolve_endpoints(made))
    assert words.startswith("vllm/m: price.input of 2.5 for one token")


@pytest.mark.parametrize(
    ("params", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 9}, 9),
        ({"max_tokens": 5, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 5}, 9),
        ({"max_tokens": "{{ most }}", "max_completion_tokens": 5}, 5),
    ],
)
def test_rates_and_budget_reckon_with_the_same_limit_of_tokens(params: dict[str, object], limit: int | None) -> None:
    [endpoint] = resolve_endpoints(job("vllm/m", params=params))
    assert answer_limit(job("vllm/m", params=params), endpoint) == limit
    assert request_max_tokens(Request([Message("user", "x")], params)) == limit


@pytest.mark.parametrize("name", ["web_search_options", "prediction", "models", "previous_response_id"])
def test_a_parameter_that_nothing_bounds_is_refused_under_a_budget(name: str) -> None:
    made = job("vllm/m", budget_usd=1.0, params={"max_tokens": 5, name: ["x"]}, price={"input": 0, "output": 1})
    with pytest.raises(JobError, match=f"params.{name} of vllm/m has no known bound"):
        priced(made, resolve_endpoints(made), TODAY)


@pytest.mark.parametrize(
    ("model", "content", "tokens"),
    [
        ("anthropic/claude-sonnet-4-6", b'{"tools":[]}', 612),
        ("anthropic/claude-sonnet-4-6", b'{"a":"\\"tools\\":[]"}', 20),
        ("vllm/m", b'{"tools":[]}', 12),
    ],
)
def test_what_claude_is_told_of_tools_counts_at_the_worst(
    model: str, content: bytes, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-key")
    made = job(model, params={"max_tokens": 1}, price={"input": 1, "output": 0, "unit": "token"})
    [endpoint] = priced(made, resolve_endpoints(made), TODAY)
    worst = worst_case_of(made, endpoint, lambda request: content)
    assert worst is not None
    assert worst(Request([Message("user", "x")], {})) == tokens


def test_a_cache_for_an_hour_counts_twice_at_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-key")
    made = job("anthropic/claude-sonnet-4-6", params={"max_tokens": 1})
    [endpoint] = priced(made, resolve_endpoints(made), TODAY)
    content = b'{"cache_control":{"type":"ephemeral","ttl":"1h"}}'
    worst = worst_case_of(made, endpoint, lambda request: content)
    assert worst is not None
    assert worst(Request([Message("user", "x")], {})) == pytest.approx((len(content) * 6 + 15) / 1e6)
