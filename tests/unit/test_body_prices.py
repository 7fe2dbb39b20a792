"""Each body of a batch file costs what its own model does."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from rowmill.job import Job
from rowmill.records import Body, Request, Usage
from rowmill.runner.setup.body_prices import BodyPrices
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.pricing import priced

TODAY = date(2026, 11, 1)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")


def prices(model: str = "openai/gpt-4o-mini", **endpoint: Any) -> BodyPrices:
    job = Job.model_validate({"source": "b.jsonl", "endpoints": [{"model": model, **endpoint}]})
    [resolved] = priced(job, resolve_endpoints(job), TODAY)
    return BodyPrices(job, resolved, TODAY)


def request(model: str | None, max_tokens: int | None = 10, content: bytes = b"{}") -> Request:
    return Request((), {}, Body("/chat/completions", content, model, max_tokens))


def cost(model: str | None, of: BodyPrices | None = None, content: bytes = b"{}") -> float | None:
    price = (of or prices()).of(request(model, content=content))
    return None if price is None else price.cost(Usage(1_000_000, 0))


def test_each_body_has_the_price_of_its_own_model() -> None:
    assert cost("gpt-4o-mini") == pytest.approx(0.15)
    assert cost("gpt-4o") == pytest.approx(2.5)
    assert cost(None) == pytest.approx(0.15)


def test_a_model_that_nobody_knows_has_no_price() -> None:
    assert cost("no-such-model") is None


def test_a_tier_that_a_body_names_changes_its_price() -> None:
    cheaper = cost("gpt-5", content=b'{"service_tier":"flex"}')
    dearer = cost("gpt-5", content=b'{"messages":["\\"service_tier\\""]}')
    assert cheaper is not None
    assert dearer is not None
    assert cheaper < dearer


def test_a_price_that_the_job_states_is_that_of_every_body() -> None:
    stated = prices(url="http://localhost:1/v1", price={"input": 7, "output": 0})
    assert cost("anything", stated) == pytest.approx(7)
    assert cost(None, stated) == pytest.approx(7)


def test_a_server_of_ones_own_has_no_price() -> None:
    assert cost("gpt-4o-mini", prices(url="http://localhost:1/v1")) is None


def test_the_worst_case_counts_a_token_a_byte_and_the_bodys_own_limit() -> None:
    stated = prices(price={"input": 1, "output": 2, "unit": "token"})
    worst = stated.worst_usd(lambda request: b"12345")
    assert worst(request("m", 10)) == 25
    assert worst(request("m", None)) == 0


@pytest.mark.parametrize(
    ("model", "max_tokens", "words"),
    [
        ("gpt-4o", 10, None),
        ("gpt-4o", None, "--max-tokens"),
        ("no-such-model", 10, "the price of no-such-model is unknown"),
    ],
)
def test_a_budget_names_what_it_cannot_bound(model: str, max_tokens: int | None, words: str | None) -> None:
    body = request(model, max_tokens).body
    assert body is not None
    fault = prices().fault(body)
    assert fault is None if words is None else words in (fault or "")
