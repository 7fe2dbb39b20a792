"""What a run will cost, reckoned from its first rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowmill.core.pricing.forecast import Costs, Forecast
from rowmill.job import Job
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.forecasting import forecast
from rowmill.runner.setup.plan import make_plan, open_input
from rowmill.runner.setup.pricing import priced

URL = "http://localhost:1/v1"


def forecast_of(
    folder: Path, lines: list[dict[str, Any]], endpoints: list[dict[str, Any]], **keys: Any
) -> Forecast | None:
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = {"source": str(source), "output": str(folder / "out.jsonl")}
    job = Job.model_validate({**output, "endpoints": [{"url": URL, **one} for one in endpoints], **keys})
    plan = make_plan(job)
    return forecast(plan, priced(job, resolve_endpoints(job)), open_input(plan))


def price(output: float) -> dict[str, Any]:
    return {"input": 0, "output": output, "unit": "token"}


TEXTS = [{"text": str(number)} for number in range(10)]
ASKED = {"prompt": "{{ text }}", "params": {"max_tokens": 100}}


def test_rows_for_whoever_is_free_cost_as_much_as_the_first_and_at_most_the_dearest(tmp_path: Path) -> None:
    endpoints = [{"model": "vllm/a", "price": price(1)}, {"model": "vllm/b", "price": price(3)}]
    found = forecast_of(tmp_path, TEXTS, endpoints, **ASKED)
    assert found is not None
    assert found.row == Costs(1, 50, 300)
    assert found.total == Costs(10, 500, 3000)


def test_rows_that_are_meant_for_an_endpoint_cost_what_it_does(tmp_path: Path) -> None:
    endpoints = [{"model": "vllm/a", "price": price(1), "when": "text == '3'"}, {"model": "vllm/b", "price": price(3)}]
    found = forecast_of(tmp_path, TEXTS, endpoints, **ASKED)
    assert found is not None
    assert found.row.likely == pytest.approx((50 + 9 * 150) / 10)


def test_bodies_cost_by_their_own_limits(tmp_path: Path) -> None:
    lines = [
        {"custom_id": str(n), "url": "/v1/chat/completions", "body": {"messages": [], "max_tokens": 10 * n}}
        for n in (1, 2, 3)
    ]
    found = forecast_of(tmp_path, lines, [{"model": "vllm/a", "price": price(1)}])
    assert found is not None
    assert found.row == pytest.approx((1, 10, 20))


def test_rows_that_are_skipped_or_cannot_be_sent_cost_nothing(tmp_path: Path) -> None:
    rows = [{"text": "a"}, {"text": ""}]
    found = forecast_of(tmp_path, rows, [{"model": "vllm/a", "price": price(1)}], empty="skip", **ASKED)
    assert found is not None
    assert found.row.likely == 25


@pytest.mark.parametrize("prices", [[None], [price(0)], [price(1), None]])
def test_without_prices_or_at_none_nothing_is_reckoned(tmp_path: Path, prices: list[dict[str, Any] | None]) -> None:
    endpoints = [{"model": f"vllm/{n}", "price": one} for n, one in enumerate(prices)]
    assert forecast_of(tmp_path, TEXTS, endpoints, **ASKED) is None


def test_rows_that_are_chosen_by_a_condition_have_no_number(tmp_path: Path) -> None:
    found = forecast_of(tmp_path, TEXTS, [{"model": "vllm/a", "price": price(1)}], where="text != '3'", **ASKED)
    assert found is not None
    assert found.total is None
