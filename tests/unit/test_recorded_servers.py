"""Real servers' replies, recorded word for word, and what Rowmill takes each for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from rowmill.core.replies.answers import compile_schema, read_answer
from rowmill.core.replies.failures import classify
from rowmill.errors import FailureKind
from rowmill.providers.openai import read_completion
from rowmill.records import Failure, RawReply, Reply, Usage

FOLDER = Path(__file__).parent.parent / "recorded"
RECORDED = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
VLLM, FACTORY, LLAMA = "vllm-0.32", "llamafactory-0.9.5", "llamacpp"
LABELS = compile_schema("sentiment: positive|negative")


def recorded(server: str, case: str) -> RawReply:
    found = RECORDED[server][case]
    return RawReply(found["status"], found["headers"], found["body"].encode(), 0.1)


def failure(server: str, case: str) -> Failure:
    raw = recorded(server, case)
    found = classify(raw.status, raw.headers, raw.body, now=0.0)
    assert found is not None
    return found


def reply(server: str, case: str) -> Reply:
    raw = recorded(server, case)
    assert classify(raw.status, raw.headers, raw.body, now=0.0) is None
    read = read_completion(raw)
    assert isinstance(read, Reply)
    return read


class Refused(NamedTuple):
    server: str
    case: str
    kind: FailureKind
    words: str


REFUSED = [
    Refused(VLLM, "context", FailureKind.CONTEXT_LENGTH, "maximum context length is 2048 tokens"),
    Refused(VLLM, "model", FailureKind.MODEL_MISSING, "Valid aliases: smol; check the model's name"),
    Refused(VLLM, "max_tokens_high", FailureKind.BAD_REQUEST, "max_tokens=100000 cannot be greater"),
    Refused(VLLM, "wrong_type", FailureKind.BAD_REQUEST, "body.temperature"),
    Refused(VLLM, "range", FailureKind.BAD_REQUEST, "temperature must be non-negative, got -1.0"),
    Refused(VLLM, "bad_schema", FailureKind.BAD_REQUEST, "Grammar error: Invalid type: nonsense"),
    Refused(VLLM, "bad_json", FailureKind.BAD_REQUEST, "JSON decode error"),
    Refused(VLLM, "no_messages", FailureKind.BAD_REQUEST, "empty conversation"),
    Refused(VLLM, "key", FailureKind.CREDENTIALS, "HTTP 401: Unauthorized; check the key"),
    Refused(VLLM, "path", FailureKind.BAD_REQUEST, "HTTP 404: Not Found; check --url"),
    Refused(VLLM, "method", FailureKind.BAD_REQUEST, "HTTP 405: Method Not Allowed; check --url"),
    Refused(FACTORY, "wrong_type", FailureKind.BAD_REQUEST, "body.temperature: Input should be a valid number"),
    Refused(FACTORY, "roles", FailureKind.BAD_REQUEST, "Only supports u/a/u/a/u..."),
    Refused(FACTORY, "no_messages", FailureKind.BAD_REQUEST, "HTTP 400: Invalid length"),
    Refused(FACTORY, "bad_json", FailureKind.BAD_REQUEST, "body.31: JSON decode error"),
    Refused(FACTORY, "no_body", FailureKind.BAD_REQUEST, "body: Field required"),
    Refused(FACTORY, "generation_fault", FailureKind.SERVER, "HTTP 500: Internal Server Error"),
    Refused(FACTORY, "key", FailureKind.CREDENTIALS, "Invalid API key; check the key"),
    Refused(FACTORY, "path", FailureKind.BAD_REQUEST, "HTTP 404: Not Found; check --url"),
    Refused(FACTORY, "method", FailureKind.BAD_REQUEST, "HTTP 405: Method Not Allowed; check --url"),
    Refused(LLAMA, "context", FailureKind.CONTEXT_LENGTH, "exceeds the available context size (1024 tokens)"),
    Refused(LLAMA, "loading", FailureKind.UNREACHABLE, "Loading model"),
    Refused(LLAMA, "wrong_type", FailureKind.BAD_REQUEST, "type must be number, but is string"),
    Refused(LLAMA, "bad_schema", FailureKind.BAD_REQUEST, "unrecognized type nonsense"),
    Refused(LLAMA, "bad_json", FailureKind.BAD_REQUEST, "parse error at line 1"),
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: f"{refused.server}-{refused.case}")
def test_a_refusal_is_known_and_says_why(refused: Refused) -> None:
    found = failure(refused.server, refused.case)
    assert found.kind is refused.kind
    assert refused.words in found.message


@pytest.mark.parametrize("server", [VLLM, FACTORY, LLAMA])
def test_a_whole_answer_ends_by_itself_and_its_tokens_are_counted(server: str) -> None:
    read = reply(server, "whole")
    assert (read.text or "").startswith("Hello there!")
    assert read.finish_reason == "stop"
    assert read.usage.output_tokens in (24, 25)


@pytest.mark.parametrize("server", [VLLM, FACTORY, LLAMA])
def test_an_answer_cut_at_the_limit_is_truncated_and_its_text_kept(server: str) -> None:
    read = reply(server, "limit")
    seen = read_answer(read, None)
    assert isinstance(seen, Failure)
    assert seen.kind is FailureKind.TRUNCATED
    assert seen.values == {"answer": "This review was positive"}
    assert read.usage == Usage(read.usage.input_tokens, 4, read.usage.cached_input_tokens)


@pytest.mark.parametrize("server", [VLLM, LLAMA])
def test_a_schema_sent_as_response_format_is_held_to(server: str) -> None:
    seen = read_answer(reply(server, "schema"), LABELS)
    assert not isinstance(seen, Failure)
    assert set(seen.values) == {"sentiment"}


def test_json_cut_at_the_limit_is_truncated_and_not_invalid() -> None:
    seen = read_answer(reply(VLLM, "schema_limit"), LABELS)
    assert isinstance(seen, Failure)
    assert seen.kind is FailureKind.TRUNCATED


def test_an_answer_that_has_filled_vllms_context_is_truncated_far_below_its_token_limit() -> None:
    read = reply(VLLM, "context_full")
    assert read.usage == Usage(2016, 32)
    seen = read_answer(read, None)
    assert isinstance(seen, Failure)
    assert seen.kind is FailureKind.TRUNCATED


def test_llamafactory_says_length_of_a_whole_answer() -> None:
    """Its stop word was not the tokenizer's end token: 24 of 200 tokens, see `OpenAIProvider.send`."""
    read = reply(FACTORY, "length_untrue")
    assert (read.text or "").endswith("What can I help you with?")
    assert (read.finish_reason, read.usage.output_tokens) == ("length", 24)


@pytest.mark.parametrize("case", ["other_model", "context_overrun", "schema_ignored"])
def test_llamafactory_answers_what_others_refuse(case: str) -> None:
    """It knows one model whatever it is called, no context limit and no response format."""
    assert reply(FACTORY, case).text
