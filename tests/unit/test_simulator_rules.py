"""The simulator's scripts, limits and bodies, without a socket."""

from __future__ import annotations

from random import Random
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from rowmill.simulator.behaviour import Behaviour, Latency, Outage, ReadRequest, plan, read_request
from rowmill.simulator.counters import Counters
from rowmill.simulator.quotas import Quotas, Window
from rowmill.simulator.replies import body_of, fitting
from rowmill.simulator.script import Fault, Step, as_script
from rowmill.simulator.shapes import read_shaped, shape_of, vector


def asked(text: str, **more: object) -> ReadRequest:
    return read_request(msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}], **more}))


def test_a_script_is_followed_and_then_used_up() -> None:
    script = as_script("503, 429 retry-after=3 code=slow_down, ok")
    slow_down = Step(Fault.ERROR, 429, code="slow_down", retry_after="3")
    assert [script.at(n) for n in range(4)] == [Step(Fault.ERROR, 503), slow_down, Step(), None]


def test_dots_repeat_the_last_step_for_ever() -> None:
    assert as_script("ok, hang...").at(99) == Step(Fault.HANG)


def test_a_bad_step_is_named() -> None:
    with pytest.raises(ValueError, match="unknown option 'retry'"):
        Step.parse("429 retry=3")


def test_a_row_overrides_what_is_done_to_it() -> None:
    step = plan(Behaviour(scripts={"*": "500..."}), asked("[[r1 latency=2 status=503]]"), 0, Random(0))
    assert (step.status, step.latency_s) == (503, 2.0)


def test_only_the_last_user_message_names_the_row() -> None:
    messages = [{"role": "user", "content": "[[a]]"}, {"role": "user", "content": [{"text": "[[b]]"}]}]
    assert read_request(msgspec.json.encode({"messages": messages})).token == "b"


def test_faults_come_at_their_share() -> None:
    behaviour = Behaviour(faults={"500": 0.1, "hang": 0.1})
    random = Random(1)
    drawn = [plan(behaviour, asked("[[x]]"), 0, random).fault for _ in range(2000)]
    assert 150 < drawn.count(Fault.ERROR) < 250
    assert 150 < drawn.count(Fault.HANG) < 250


def test_an_unknown_model_and_a_long_prompt_are_refused() -> None:
    behaviour = Behaviour(models=("m",), context_tokens=10)
    assert plan(behaviour, asked("x" * 100), 0, Random(0)).code == "context_length_exceeded"
    assert plan(Behaviour(models=("other",)), asked("x"), 0, Random(0)).status == 404


def test_a_window_admits_its_capacity_and_names_the_wait() -> None:
    window = Window(per_min=60, span_s=6.0)
    for at_s in (0.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        assert window.wait_s(at_s, 1) == 0.0
        window.take(at_s, 1)
    assert window.wait_s(2.0, 1) == 4.0
    assert window.wait_s(2.0, 2) == 5.0
    assert window.wait_s(6.0, 1) == 0.0


def test_a_need_above_the_limit_is_never_admitted() -> None:
    assert Quotas(Behaviour(tpm=100)).admit(asked("x" * 800, max_tokens=200), 0.0) == 60.0


def test_a_refused_request_takes_from_no_window() -> None:
    quotas = Quotas(Behaviour(rpm=2, tpm=100))
    assert quotas.admit(asked("x", max_tokens=90), 0.0) == 0.0
    assert quotas.admit(asked("x", max_tokens=90), 1.0) == 59.0
    assert quotas.admit(asked("x", max_tokens=5), 1.0) == 0.0


@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("openai", "x-ratelimit-reset-requests: 1m0.000s"),
        ("openai", "x-ratelimit-remaining-requests: 1"),
        ("groq", "x-ratelimit-limit-requests: 14402"),
        ("anthropic", "anthropic-ratelimit-requests-reset: 2023-11-14T22:14:20Z"),
    ],
)
def test_limits_are_announced_in_the_dialect(dialect: str, line: str) -> None:
    quotas = Quotas(Behaviour(rpm=2, dialect=dialect))
    quotas.admit(asked("x"), 0.0)
    assert line in quotas.headers(0.0, 1_700_000_000.0).split("\r\n")


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("seconds", "retry-after: 3\r\n"),
        ("fraction", "retry-after: 2.500\r\n"),
        ("ms", "retry-after-ms: 2500\r\n"),
        ("date", "retry-after: Tue, 14 Nov 2023 22:13:23 GMT\r\n"),
        ("none", ""),
    ],
)
def test_the_wait_is_told_in_every_form(form: str, line: str) -> None:
    assert Quotas(Behaviour(rpm=1, retry_after=form)).retry_headers(2.5, 1_700_000_000.0) == line


def test_peaks_are_counted_over_sliding_windows() -> None:
    counters = Counters(window_s=10.0, keep_log=False)
    for at_s in (0.0, 0.9, 1.8, 1.9, 2.0, 11.5):
        counters.arrived("r", at_s)
    report = counters.report()
    assert report["peak_per_second"] == 3
    assert report["peak_in_window"] == 5
    assert report["tokens"] == {"r": 6}


SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"enum": ["a", "b", "c"]},
        "score": {"type": "number"},
        "stars": {"type": "integer", "minimum": 1},
        "sure": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "inner": {"$ref": "#/$defs/inner"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["label", "score", "stars", "sure", "tags", "inner", "maybe"],
    "$defs": {"inner": {"type": "object", "properties": {"x": {"const": 7}}, "required": ["x"]}},
}


def test_an_answer_fits_the_schema_that_was_asked_for() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    body = body_of(Step(), asked("[[row-1]]", response_format=wanted), Behaviour(), 1)
    answer = msgspec.json.decode(msgspec.json.decode(body.content)["choices"][0]["message"]["content"])
    jsonschema_rs.validator_for(SCHEMA).validate(answer)


def test_different_rows_get_different_choices() -> None:
    assert {fitting(SCHEMA, f"row-{n}", SCHEMA)["label"] for n in range(50)} == {"a", "b", "c"}


def test_usage_counts_the_cached_share() -> None:
    body = body_of(Step(), asked("x" * 400), Behaviour(cached_share=0.5), 1)
    assert msgspec.json.decode(body.content)["usage"]["prompt_tokens_details"]["cached_tokens"] == 50
    assert (body.input_tokens, body.cached_tokens) == (100, 50)


def test_latencies_are_read_from_text() -> None:
    assert Latency.parse("0.5").draw(Random(0)) == 0.5
    assert 0.1 <= Latency.parse("0.1-0.9").draw(Random(0)) <= 0.9
    assert Latency.parse("lognormal:0.5,0").draw(Random(0)) == 0.5


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/completions", "completions"),
        ("/v1/embeddings", "embeddings"),
        ("/score", "score"),
        ("/v2/rerank", "rerank"),
        ("/v1/models", None),
        ("/v1/chat", None),
    ],
)
def test_other_apis_are_known_by_their_paths(path: str, shape: str | None) -> None:
    assert shape_of(path) == shape


def shaped(shape: str, **body: object) -> dict[str, Any]:
    asked = read_shaped(shape, msgspec.json.encode({"model": "m", **body}))
    made: dict[str, Any] = msgspec.json.decode(body_of(Step(), asked, Behaviour(), 1).content)
    assert made["model"] == "m"
    return made


def test_other_apis_answer_in_their_own_shapes() -> None:
    assert shaped("completions", prompt="[[a]] x", max_tokens=2)["choices"][0]["text"] == "a"
    assert shaped("responses", input="[[a]]")["output"][0]["content"][0]["text"] == "a"
    assert [one["embedding"] for one in shaped("embeddings", input=["[[a]]", "b"])["data"]] == [
        vector("a0"),
        vector("a1"),
    ]
    assert len(shaped("score", text_1="[[a]]", text_2=["x", "y"])["data"]) == 2
    assert [one["index"] for one in shaped("rerank", query="[[a]]", documents=["x", "y"])["results"]] == [0, 1]
    assert shaped("moderations", input="x")["results"][0]["flagged"] is False


def test_an_answer_cut_at_the_limit_says_so_in_its_own_words() -> None:
    cut = Step(Fault.LENGTH)
    asked = read_shaped("responses", b'{"input":"[[abcd]]","max_output_tokens":1}')
    made = msgspec.json.decode(body_of(cut, asked, Behaviour(), 1).content)
    assert made["status"] == "incomplete"
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}
    assert made["usage"]["output_tokens"] == 1


@pytest.mark.parametrize(
    ("body", "words"), [(b"{}", "does not say"), (b"[]", "Expected `object`"), (b'{"input":', "truncated")]
)
def test_a_request_that_asks_for_nothing_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_shaped("embeddings", body)


@pytest.mark.parametrize(
    "settings",
    [{"faults": {"badjson": 0.2}}, {"scripts": {"row-1": "503, hangs, ok"}}, {"outages": [Outage(0, 1, "rest")]}],
)
def test_a_fault_that_there_is_not_is_refused_with_those_there_are(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="There are ok, error, hang"):
        Behaviour(**settings)


def test_a_fault_that_is_nearly_right_is_put_right() -> None:
    with pytest.raises(ValueError, match="did you mean bad-json"):
        Behaviour(faults={"badjson": 0.2})
