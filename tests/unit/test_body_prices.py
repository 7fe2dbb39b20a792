"""Each body of a batch file costs what its own model does."""

from __future__ import annotations

import json
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
    found = prices().bounded(body, {})
    assert isinstance(found, Body) if words is None else words in str(found)


IMAGE = "data:image/png;base64," + "A" * 60_000


def asked(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": list(parts)}], "max_tokens": 1, **more}


def responding(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "input": list(items), "max_output_tokens": 1, **more}


def bounded(values: dict[str, Any], of: BodyPrices | None = None, path: str = "/chat/completions") -> Body | str:
    body = Body(path, json.dumps(values).encode(), values.get("model"), 1)
    return (of or prices()).bounded(body, values)


@pytest.mark.parametrize(
    ("path", "values", "place"),
    [
        ("/chat/completions", asked({"type": "input_audio", "input_audio": {"data": "AA"}}), "messages[0].content[0]"),
        ("/chat/completions", asked({"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "f"}}), "[1]"),
        ("/chat/completions", asked({"type": "video_url", "video_url": {"url": "x"}}), "messages[0].content[0]"),
        ("/chat/completions", asked({"type": "image_url", "image_url": {"file_id": "f"}}), "messages[0].content[0]"),
        ("/chat/completions", asked({"kind": "unheard of"}), "messages[0].content[0]"),
        ("/chat/completions", asked(audio={"voice": "x"}), "audio"),
        ("/chat/completions", asked(modalities=["text", "audio"]), "modalities"),
        ("/chat/completions", asked(web_search_options={"a": 1}), "web_search_options"),
        ("/chat/completions", asked(prediction={"content": "x"}), "prediction"),
        ("/chat/completions", asked(models=["dear"]), "models"),
        ("/chat/completions", asked(tools=[{"type": "web_search"}]), "tools[0]"),
        (
            "/chat/completions",
            {"messages": [{"role": "assistant", "audio": {"id": "a"}}], "model": "gpt-4o-mini"},
            "messages[0].audio",
        ),
        ("/responses", responding(previous_response_id="r"), "previous_response_id"),
        ("/responses", responding(conversation="c"), "conversation"),
        ("/responses", responding(prompt={"id": "p"}), "prompt"),
        ("/responses", responding({"type": "item_reference", "id": "i"}), "input[0]"),
        ("/responses", responding({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}), "input[0]"),
        ("/responses", responding({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}), "input[0]"),
        (
            "/responses",
            responding({"type": "function_call_output", "output": [{"type": "input_file", "file_url": "u"}]}),
            "input[0].output[0]",
        ),
        ("/embeddings", {"model": "gpt-4o-mini", "input": [{"image": "https://example.org"}]}, "input[0]"),
        (
            "/rerank",
            {"model": "gpt-4o-mini", "query": "q", "documents": [{"text": "a"}, {"image": "u"}]},
            "documents[1]",
        ),
        ("/score", {"model": "gpt-4o-mini", "text_1": {"content": []}, "text_2": ["a"]}, "text_1"),
        ("/responses", responding(tools=[{"type": "function"}, {"type": "file_search"}]), "tools[1]"),
    ],
)
def test_a_part_without_a_bound_is_refused_by_its_place(path: str, values: dict[str, Any], place: str) -> None:
    found = bounded(values, path=path)
    assert isinstance(found, str)
    assert place in found
    assert "has no known bound on its tokens" in found
    assert "take it out" in found


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/chat/completions", asked({"type": "text", "text": "a"}, tools=[{"type": "function", "function": {}}])),
        ("/chat/completions", {"messages": [{"role": "user", "content": "prompt"}], "tool_choice": "none"}),
        ("/completions", {"prompt": [[1, 2], [3]], "max_tokens": 1}),
        ("/embeddings", {"input": ["a", "b"]}),
        ("/responses", responding({"role": "user", "content": "a"}, {"type": "function_call", "arguments": "{}"})),
        ("/responses", {"input": "text"}),
    ],
)
def test_text_and_own_tools_are_bounded_by_their_bytes(path: str, values: dict[str, Any]) -> None:
    found = bounded({"model": "gpt-4o-mini", **values}, path=path)
    assert isinstance(found, Body)
    assert found.surplus_tokens == 0


@pytest.mark.parametrize("image", [{"url": IMAGE}, IMAGE])
def test_an_image_counts_what_one_counts_at_most_and_not_its_bytes(image: Any) -> None:
    values = asked({"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": image})
    found = bounded(values)
    assert isinstance(found, Body)
    assert len(found.content) + found.surplus_tokens == len(json.dumps(values)) - len(IMAGE) + 48_169


def test_the_worst_case_of_an_image_behind_an_address_is_that_of_an_image() -> None:
    of = prices(price={"input": 1, "output": 0, "unit": "token", "image_tokens": 40_000})
    body = bounded(asked({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}), of)
    assert isinstance(body, Body)
    worst = of.worst_usd(lambda request: body.content)
    assert worst(Request((), {}, body)) == len(body.content) + 40_000


def test_an_image_at_a_server_of_ones_own_needs_a_stated_bound() -> None:
    of = prices(url="http://localhost:1/v1", price={"input": 1, "output": 0})
    found = bounded(asked({"type": "image_url", "image_url": {"url": IMAGE}}), of)
    assert isinstance(found, str)
    assert "image_tokens" in found


def test_at_a_price_of_nothing_nothing_needs_a_bound() -> None:
    of = prices(url="http://localhost:1/v1", price={"input": 0, "output": 0})
    assert isinstance(bounded(asked({"type": "input_audio"}), of), Body)


def test_a_query_counts_once_for_each_document() -> None:
    values = {"model": "gpt-4o-mini", "query": "q" * 100, "documents": ["a"] * 50}
    found = bounded(values, path="/rerank")
    assert isinstance(found, Body)
    assert len(found.content) + found.surplus_tokens == 50 * len(json.dumps(values))
