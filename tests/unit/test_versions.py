"""Which keys of a job belong to its version: a key that changes what is sent or how a reply is read does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rowmill.job import Job
from rowmill.job.model import AnswerSpec, EndpointSpec, HttpSpec
from rowmill.job.version import changed_lines, definition, fingerprint

if TYPE_CHECKING:
    from pydantic import BaseModel

# What is sent, or how what comes back is read.
OF_THE_VERSION = {
    "job": {"prompt", "system", "answer", "endpoints", "params"},
    "answer": {"schema_"},
    "endpoint": {"model", "params", "http", "prompt", "parse"},
    "http": {"body", "answer", "reasoning", "finish", "input_tokens", "output_tokens"},
}
# Which rows, who is asked first, how fast, how often, for how much, where to: a reply means the same.
OF_NO_VERSION = {
    "job": {
        "source", "budget_usd", "retry", "timeout_s", "connect_timeout_s", "row_timeout_s", "max_duration_s",
        "max_outage_s", "output", "format", "query", "table", "mode", "id", "run_file", "split_rows", "dedupe",
        "static_prompt", "pilot", "limit", "sample", "seed", "where", "empty", "max_failure_rate", "encoding",
        "delimiter", "sheet", "answer_prefix", "meta_prefix", "escape_formulas",
    },
    "answer": {"repair", "fallback_for", "fallback", "expect"},
    "endpoint": {
        "name", "url", "key_env", "key_file", "ca_file", "headers", "in_flight", "rpm", "tpm", "input_tpm",
        "output_tpm", "headroom", "price", "take", "when", "pin", "quota", "cascade",
    },
    "http": set(),
}  # fmt: skip
MODELS: dict[str, type[BaseModel]] = {"job": Job, "answer": AnswerSpec, "endpoint": EndpointSpec, "http": HttpSpec}


@pytest.mark.parametrize("name", MODELS)
def test_every_key_is_decided(name: str) -> None:
    fields = set(MODELS[name].model_fields)
    assert OF_THE_VERSION[name] | OF_NO_VERSION[name] == fields
    assert not OF_THE_VERSION[name] & OF_NO_VERSION[name]


def version_of(keys: dict[str, Any]) -> str:
    job = Job.model_validate({"source": "in.csv", "output": "out.jsonl", **keys})
    made = definition(job)
    return f"{fingerprint(made)} {next(iter(made['models']))}"


HTTP = {"model": "http/m", "url": "http://127.0.0.1:1/x", "http": {"answer": "a"}}
BASE: dict[str, Any] = {"prompt": "Say {{ text }}", "endpoints": [{"model": "m", "url": "http://127.0.0.1:1/v1"}]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "prompt": (BASE, {**BASE, "prompt": "Tell {{ text }}"}),
    "system": (BASE, {**BASE, "system": "Be brief."}),
    "params": (BASE, {**BASE, "params": {"temperature": 0}}),
    "answer.schema": (BASE, {**BASE, "answer": {"schema": {"label": "a|b"}}}),
    "endpoint.model": (BASE, {**BASE, "endpoints": [{**BASE["endpoints"][0], "model": "n"}]}),
    "endpoint.params": (BASE, {**BASE, "endpoints": [{**BASE["endpoints"][0], "params": {"top_k": 1}}]}),
    "endpoint.prompt": (BASE, {**BASE, "endpoints": [{**BASE["endpoints"][0], "prompt": "Own {{ text }}"}]}),
    "endpoint.parse": (BASE, {**BASE, "endpoints": [{**BASE["endpoints"][0], "parse": "json:loads"}]}),
    **{
        f"http.{key}": (
            {**BASE, "endpoints": [HTTP]},
            {**BASE, "endpoints": [{**HTTP, "http": {"answer": "a", **{key: {"b": 1} if key == "body" else "c"}}}]},
        )
        for key in sorted(OF_THE_VERSION["http"])
    },
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_that_changes_what_is_sent_or_read_changes_the_version(key: str) -> None:
    before, after = CHANGES[key]
    assert version_of(before) != version_of(after)


@pytest.mark.parametrize(
    "changed",
    [
        {"budget_usd": 1.0},
        {"retry": {"attempts": 9}},
        {"limit": 3},
        {"dedupe": True},
        {"answer_prefix": "x_"},
        {"endpoints": [{**BASE["endpoints"][0], "in_flight": 3, "rpm": 5.0, "url": "http://127.0.0.1:2/v1"}]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_key_that_changes_neither_leaves_the_version(changed: dict[str, Any]) -> None:
    assert version_of(BASE) == version_of({**BASE, **changed})


def lines_of(prompt: str) -> dict[str, Any]:
    return definition(Job.model_validate({"source": "in.csv", "output": "out.jsonl", **BASE, "prompt": prompt}))


def test_the_first_lines_that_differ_are_shown_also_of_a_long_prompt_that_is_all_other() -> None:
    old, new = (
        lines_of("{{ text }}\n" + "\n".join(f"{word} {n} {n * n}" for n in range(1500))) for word in ("an", "the")
    )
    shown = changed_lines(old, new)
    assert shown[:2] == ["- an 0 0", "- an 1 1"]
    assert shown[-1] == "... 2994 more lines differ"
    assert changed_lines(old, old) == []
