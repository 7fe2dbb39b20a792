"""The worked examples are whole: their jobs are valid, and their data has what their prompts ask for."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowmill.core.replies.answers import compile_fallback, compile_schema
from rowmill.core.requests.prompts import compile_prompt
from rowmill.job import load_job
from rowmill.records import Message, Row

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(EXAMPLES.glob("*.yaml"))


def written(job: Path) -> Mapping[str, Any]:
    found = yaml.safe_load(job.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def rows(job: Path) -> Iterator[Mapping[str, object]]:
    path = EXAMPLES / written(job)["source"]
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file)


@pytest.fixture(params=JOBS, ids=lambda path: path.stem)
def job(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def test_there_is_one_for_labelling_extraction_and_translation() -> None:
    assert {"tickets", "listings", "phrases"} <= {path.stem for path in JOBS}


def test_the_job_has_no_fault(job: Path) -> None:
    assert load_job(str(job), {}).source == str(EXAMPLES / written(job)["source"])


def test_every_row_renders(job: Path) -> None:
    turns = [Message(*next(iter(turn.items()))) for turn in written(job)["prompt"]]
    prompt = compile_prompt(turns)
    rendered = [prompt.render(Row(index, row)) for index, row in enumerate(rows(job))]
    assert len(rendered) >= 16
    assert all("{{" not in message.content for messages in rendered for message in messages)


def test_what_is_expected_is_a_column_and_could_be_answered(job: Path) -> None:
    answer = written(job).get("answer", {})
    schema = compile_schema(answer["schema"]) if answer else None
    for field, column in answer.get("expect", {}).items():
        assert schema is not None
        part = schema.json_schema["properties"][field]
        for row in rows(job):
            assert "enum" not in part or row[column] in part["enum"]
    if "fallback" in answer:
        compile_fallback(answer["fallback"], schema)
