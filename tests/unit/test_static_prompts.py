"""A prompt that asks every row the same is refused before a row is paid for, unless it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.errors import JobError
from rowmill.job import job_from_options
from rowmill.runner.setup.endpoint_prompts import compile_endpoint_prompts

JOB = {"source": "in.csv", "output": "out.jsonl", "model": "vllm/m"}


@pytest.mark.parametrize(
    ("prompt", "meant"),
    [
        ("Label it", "{{ text }}"),
        ("Label {review}", "{{ review }}"),
        ("{}", "{{ text }}"),
        ("{{ 1 + 1 }}", "{{ text }}"),
    ],
)
def test_a_prompt_without_a_column_is_refused_with_what_may_be_meant(prompt: str, meant: str) -> None:
    with pytest.raises(JobError, match="uses no column") as refused:
        compile_endpoint_prompts(job_from_options({**JOB, "prompt": prompt}))
    assert meant in str(refused.value)
    assert "--static-prompt" in str(refused.value)


def test_the_name_of_a_file_is_taken_for_one_that_lacks_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text("{{ text }}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match=r"@prompt\.txt"):
        compile_endpoint_prompts(job_from_options({**JOB, "prompt": "prompt.txt"}))


def test_one_endpoints_own_prompt_is_held_to_it_too() -> None:
    endpoints = [{"model": "vllm/a"}, {"model": "vllm/b", "prompt": "always the same"}]
    with pytest.raises(JobError, match="uses no column"):
        compile_endpoint_prompts(job_from_options({**JOB, "model": None, "prompt": "{{ a }}", "endpoints": endpoints}))


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": "Write a poem", "static_prompt": True},
        {"prompt": "Poem {{ _row }}"},
        {"prompt": "Write a poem", "params": {"seed": "{{ n }}"}},
        {"prompt": "Write a poem", "system": "About {{ text }}"},
    ],
)
def test_what_is_meant_or_differs_from_row_to_row_goes(options: dict[str, object]) -> None:
    assert compile_endpoint_prompts(job_from_options({**JOB, **options})).each
