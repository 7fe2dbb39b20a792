"""The table of options, the code that repeats it by type, and the reference that is made of it agree."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import reference

from rowmill.api.options import NAMED, CallOptions, MapOptions, RunOptions
from rowmill.core.replies.answers import STANDS_IN_FOR
from rowmill.engine.lane_config import LaneConfig
from rowmill.errors import StopReason
from rowmill.job import Job, load_job
from rowmill.job.model import AnswerSpec, EndpointSpec, HttpSpec, PriceTag, RetrySpec
from rowmill.job.option_table import BY_KEY, BY_NAME, OPTIONS, Option, parent, python_arguments
from rowmill.observers.summary import summary_object
from rowmill.records import GOOD, Figures, Result, Status
from rowmill.runner.maps.calls import IN_FLIGHT

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

MODELS: dict[str, type[BaseModel]] = {
    "": Job,
    "answer": AnswerSpec,
    "retry": RetrySpec,
    "endpoints[]": EndpointSpec,
    "endpoints[].price": PriceTag,
    "endpoints[].http": HttpSpec,
}
KEYS = [option for option in OPTIONS if option.key]


def choices_in(annotation: Any) -> set[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return {choice for part in typing.get_args(annotation) for choice in choices_in(part)}


@pytest.mark.parametrize("name", reference.pages())
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == reference.pages()[name], "run `make reference`"


@pytest.mark.parametrize("where", MODELS)
def test_the_job_has_the_keys_defaults_and_choices_of_the_table(where: str) -> None:
    fields = {field.alias or name: field for name, field in MODELS[where].model_fields.items()}
    listed = {o.key.rpartition(".")[2]: o for o in KEYS if parent(o.key) == where}
    mappings = {"answer", "retry"} if where == "" else set()
    assert set(fields) - mappings == set(listed)
    for name, option in listed.items():
        field = fields[name]
        given = None if field.is_required() or name == "prompt" else field.default
        expected = {"params": {}}.get(name, option.default)
        assert given == ({} if name == "expect" else expected), name
        literals = choices_in(field.annotation) - {"auto"}
        if literals:
            assert literals == set(option.choices), name


def test_python_takes_the_arguments_of_the_table() -> None:
    named = set(NAMED)
    assert set(RunOptions.__annotations__) | named == python_arguments("run") - {"source"}
    assert set(MapOptions.__annotations__) | named - {"output"} == python_arguments("map")
    assert set(CallOptions.__annotations__) == python_arguments("call")


@pytest.mark.parametrize("kind", [RunOptions, MapOptions, CallOptions])
def test_pythons_choices_are_those_of_the_table(kind: type) -> None:
    for name, annotation in typing.get_type_hints(kind, localns={"Quote": object}).items():
        literals = choices_in(annotation) - {"auto"}
        if literals:
            assert literals == set(BY_NAME[name].choices), name


def test_statuses_and_defaults_of_other_layers_are_those_of_the_table() -> None:
    bad = {str(status) for status in Status if status not in GOOD}
    assert set(BY_KEY["endpoints[].cascade"].choices) == bad
    assert BY_KEY["answer.fallback_for"].choices == tuple(map(str, STANDS_IN_FOR))
    lane = LaneConfig(name="a", model="m")
    assert (lane.timeout_s, lane.max_outage_s) == (BY_NAME["timeout_s"].default, BY_NAME["max_outage_s"].default)
    assert f"{IN_FLIGHT} where none is given" in BY_NAME["in_flight"].note


def test_the_reference_names_every_key_of_the_summary() -> None:
    figures = Figures(0, {}, 0, 0.0, 0.0, None, 0, 0, 0, None, {}, {}, {}, ())
    found = summary_object(Result(StopReason.FINISHED, 0, "", figures, None, None, "r"))
    assert [name for name, _, _ in reference.SUMMARY] == list(found)


# What an example needs beside it.
CONTEXT: dict[str, dict[str, Any]] = {
    "table": {"output": "sqlite:///o.db"},
    "mode": {"output": "sqlite:///o.db", "table": "t"},
    "id": {"output": "sqlite:///o.db", "table": "t", "mode": "upsert"},
    "query": {"source": "sqlite:///i.db", "output": "o.jsonl"},
    "answer.fallback": {"answer": {"schema": {"label": "good|bad", "score": "number"}}},
    "answer.fallback_for": {"answer": {"schema": {"a": "string"}, "fallback": {"a": "x"}}},
    "answer.expect": {"answer": {"schema": {"label": "good|bad"}}},
}


def document_with(option: Option) -> dict[str, Any]:
    """A job file that holds the option's example."""
    job: dict[str, Any] = {"source": "a.csv", "prompt": "{{ text }}", "endpoints": [{"model": "openai/m"}]}
    job |= CONTEXT.get(option.key, {})
    endpoint = job["endpoints"][0]
    example = yaml.safe_load(option.example)
    if "http" in option.key:
        endpoint |= {"model": "http/m", "url": "http://localhost:1/ask"}
    match parent(option.key):
        case "":
            job |= example
        case "endpoints[]":
            endpoint |= example
            if "cascade" in example:
                job["endpoints"].append({"model": "openai/n"})
        case "endpoints[].price":
            endpoint["price"] = {"input": 1, "output": 1, **example}
        case "endpoints[].http":
            endpoint["http"] = example
        case key:
            job[key] = {**job.get(key, {}), **example}
    return job


@pytest.mark.parametrize("option", KEYS, ids=lambda option: option.key)
def test_the_example_of_each_key_loads(option: Option, tmp_path: Path) -> None:
    assert list(yaml.safe_load(option.example)) == [option.key.rpartition(".")[2]]
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(document_with(option)), encoding="utf-8")
    load_job(str(path), {})
