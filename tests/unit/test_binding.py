"""An option of an endpoint binds to the `-m` before it; a URL or a key never crosses from one to another."""

from __future__ import annotations

import pytest

from rowmill.cli.binding import bind
from rowmill.errors import JobError
from rowmill.job import job_from_options
from rowmill.job.load import apply_overrides

FIRST = ("run", "in.csv", "-p", "{{ a }}")


def bound(*words: str) -> list[dict[str, object]] | None:
    return bind([*FIRST, *words])[1]


def test_options_go_to_the_model_before_them() -> None:
    assert bound("-m", "a", "--url", "A", "--key-env", "K1", "-m", "b", "--url", "B", "--key-env", "K2") == [
        {"model": "a", "url": "A", "key_env": "K1"},
        {"model": "b", "url": "B", "key_env": "K2"},
    ]


def test_however_they_are_spelled() -> None:
    assert bound("-ma", "--url=A", "--rpm", "60", "--model=b", "--in-flight", "8") == [
        {"model": "a", "url": "A", "rpm": 60.0},
        {"model": "b", "in_flight": 8},
    ]


def test_what_stands_before_the_first_model_holds_for_those_that_state_none() -> None:
    assert bound("--in-flight", "4", "-m", "a", "-m", "b", "--in-flight", "auto") == [
        {"model": "a", "in_flight": 4},
        {"model": "b", "in_flight": "auto"},
    ]


@pytest.mark.parametrize("crossing", [("--url", "U"), ("--key-env", "K")])
def test_a_url_or_a_key_before_several_models_is_refused(crossing: tuple[str, str]) -> None:
    with pytest.raises(JobError, match="after the -m"):
        bound(*crossing, "-m", "a", "-m", "b")


def test_a_model_without_a_key_gets_none_from_its_neighbour() -> None:
    assert bound("-m", "a", "--key-env", "K", "-m", "b") == [{"model": "a", "key_env": "K"}, {"model": "b"}]


def test_with_one_model_the_order_is_free() -> None:
    words = [*FIRST, "--url", "U", "-m", "a"]
    assert bind(words) == (words, None)


@pytest.mark.parametrize(
    "twice",
    [
        ("-p", "B"),
        ("--prompt=B",),
        ("--url", "A", "-m", "a", "--url", "B"),
        ("-m", "a", "--key-env", "A", "--key-env", "B"),
        ("-o", "x.csv", "-o", "y.csv"),
        ("-m", "a", "-m", "b", "--rpm", "1", "--rpm", "2"),
    ],
)
def test_a_single_option_given_twice_is_refused(twice: tuple[str, ...]) -> None:
    with pytest.raises(JobError, match="given twice"):
        bound(*twice)


def test_what_may_be_repeated_may_be_repeated() -> None:
    words = ("--param", "a=1", "--param", "b=2", "-m", "a", "--header", "X: $X", "--header", "Y: $Y", "-m", "b")
    rest, endpoints = bind([*FIRST, *words])
    assert rest == [*FIRST, *words[:4]]
    assert endpoints == [{"model": "a", "headers": ["X: $X", "Y: $Y"]}, {"model": "b"}]


def test_a_value_that_looks_like_an_option_is_a_value() -> None:
    assert bound("--system", "-m", "-m", "a") is None


def test_commands_without_endpoints_are_left_alone() -> None:
    assert bind(["status", "out.jsonl", "-m"]) == (["status", "out.jsonl", "-m"], None)


def test_the_job_has_each_endpoint_with_its_own() -> None:
    rest, endpoints = bind([*FIRST, "-m", "vllm/a", "--header", "X: $X", "-m", "vllm/b", "--url", "http://h:1/v1"])
    job = job_from_options({"source": "in.csv", "prompt": "{{ a }}", "output": "o.jsonl", "endpoints": endpoints})
    assert rest == list(FIRST)
    assert [dict(one.headers) for one in job.endpoints] == [{"X": "$X"}, {}]
    assert [one.url for one in job.endpoints] == [None, "http://h:1/v1"]


TWO = {"source": "in.csv", "prompt": "{{ a }}", "output": "o.jsonl", "model": ["vllm/a", "vllm/b"]}


def test_python_refuses_one_url_for_several_models() -> None:
    with pytest.raises(JobError, match="several"):
        job_from_options({**TWO, "url": "http://h:1/v1"})


def test_an_override_gives_no_key_to_several_endpoints() -> None:
    with pytest.raises(JobError, match="several"):
        apply_overrides(job_from_options(TWO), {"key_env": "K"})
