"""Provider, transport and simulator together."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.core.replies.answers import AnswerSchema, compile_schema, read_answer
from rowmill.errors import FailureKind
from rowmill.io.http.pyreqwest_ import PyreqwestTransport
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai import OpenAIProvider
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Failure, Message, RawReply, Reply, Request
from rowmill.simulator import Behaviour, Simulator

SCHEMA = compile_schema("label: yes|no, score: number")


def ask(simulator: Simulator, text: str, schema: AnswerSchema | None = None) -> Reply | Failure:
    async def run() -> Reply | Failure:
        transport = PyreqwestTransport(environment={})
        endpoint = resolve("m", simulator.url)
        provider = OpenAIProvider(transport, endpoint, Credentials(endpoint, environment={}), schema)
        found = await provider.send(Request((Message("user", text),), {"max_tokens": 8}), 5.0)
        await transport.close()
        return provider.read(found) if isinstance(found, RawReply) else found

    return asyncio.run(run())


def test_a_row_is_answered_with_its_token_and_its_usage() -> None:
    with Simulator(Behaviour(cached_share=0.5)) as simulator:
        found = ask(simulator, "please answer this row, thank you [[row-9]]")
    assert isinstance(found, Reply)
    assert found.text == "row-9"
    assert found.usage.input_tokens == 10
    assert found.usage.cached_input_tokens == 5
    assert found.request_id == "sim-1"


def test_an_answer_fits_the_schema_that_was_sent() -> None:
    with Simulator() as simulator:
        found = ask(simulator, "[[row-9]]", SCHEMA)
    assert isinstance(found, Reply)
    answer = read_answer(found, SCHEMA)
    assert isinstance(answer, Answer)
    assert answer.values["label"] in ("yes", "no")


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("503", FailureKind.SERVER),
        ("503 retry-after=3", FailureKind.THROTTLED),
        ("429 retry-after=0.5", FailureKind.THROTTLED),
        ("429 code=insufficient_quota", FailureKind.QUOTA),
        ("429 code=insufficient_quota retry-after=3", FailureKind.THROTTLED),
        ("529", FailureKind.THROTTLED),
        ("402", FailureKind.QUOTA),
        ("401", FailureKind.CREDENTIALS),
        ("403", FailureKind.FORBIDDEN),
        ("404 code=model_not_found", FailureKind.MODEL_MISSING),
        ("400", FailureKind.BAD_REQUEST),
        ("400 code=content_filter", FailureKind.FILTERED),
        ("400 code=context_length_exceeded", FailureKind.CONTEXT_LENGTH),
        ("error-200 code=429", FailureKind.THROTTLED),
        ("error-200 code=502", FailureKind.SERVER),
        ("html", FailureKind.UNREADABLE),
        ("html status=502", FailureKind.SERVER),
        ("bad-encoding", FailureKind.UNREADABLE),
        ("empty", FailureKind.UNREADABLE),
        ("no-choices", FailureKind.UNREADABLE),
        ("null", FailureKind.UNREADABLE),
        ("cut", FailureKind.UNREADABLE),
        ("reset", FailureKind.RESET),
        ("length", FailureKind.TRUNCATED),
        ("length-null", FailureKind.TRUNCATED),
        ("filtered", FailureKind.FILTERED),
        ("refused", FailureKind.REFUSED),
        ("bad-json", FailureKind.INVALID),
    ],
)
def test_every_fault_of_the_simulator_is_seen_as_what_it_is(step: str, kind: FailureKind) -> None:
    with Simulator(Behaviour(scripts={"*": f"{step}..."})) as simulator:
        found = ask(simulator, "[[a]]", SCHEMA)
    seen = read_answer(found, SCHEMA) if isinstance(found, Reply) else found
    assert isinstance(seen, Failure)
    assert seen.kind is kind, seen.message


@pytest.mark.parametrize("step", ["think", "reasoning", "fenced", "no-usage", "ok"])
def test_answers_in_odd_clothes_are_answers_all_the_same(step: str) -> None:
    with Simulator(Behaviour(scripts={"*": f"{step}..."})) as simulator:
        found = ask(simulator, "[[a]]", SCHEMA)
    assert isinstance(found, Reply)
    assert isinstance(read_answer(found, SCHEMA), Answer)
