"""An output of Rowmill as the input of the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.workplace import Workplace

EARLIER = """\
{"id": 0, "answer": "hello", "_row": 0, "_status": "ok", REST}
{"id": 1, "answer": null, "_row": 1, "_status": "refused", REST}
"""
REST = ", ".join(
    f'"_{name}": null'
    for name in ("error", "endpoint", "model", "attempts", "latency_s", "input_tokens", "output_tokens", "cost_usd")
)


def first_run(workplace: Workplace, name: str) -> None:
    workplace.write_rows(4)
    assert workplace.run("-o", name).code == 0


@pytest.mark.parametrize("name", ["first.jsonl", "first.csv", "first.parquet"])
def test_the_columns_of_an_earlier_run_are_set_aside_and_said_so_in_one_line(workplace: Workplace, name: str) -> None:
    first_run(workplace, name)
    ended = workplace.run("--answer-prefix", "second_", source=name)
    assert ended.code == 0, ended.err
    assert ended.err.count("set aside") == 1
    assert "--meta-prefix" in ended.err
    names = list(workplace.output()[0])
    assert names[:4] == ["id", "text", "answer", "second_answer"]
    assert names[4] == "_row"
    assert len(names) == 14


def test_another_prefix_keeps_the_columns_of_an_earlier_run(workplace: Workplace) -> None:
    first_run(workplace, "first.jsonl")
    ended = workplace.run("--answer-prefix", "second_", "--meta-prefix", "second_", source="first.jsonl")
    assert ended.code == 0, ended.err
    assert "set aside" not in ended.err
    assert {"_status", "second_status"} <= set(workplace.output()[0])


def test_a_name_that_both_runs_answer_under_is_refused_in_one_line(workplace: Workplace) -> None:
    first_run(workplace, "first.jsonl")
    ended = workplace.run(source="first.jsonl")
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert "--answer-prefix" in ended.err


def test_rows_that_ended_badly_are_skipped_where_the_prompt_needs_what_they_lack(workplace: Workplace) -> None:
    workplace.write("first.jsonl", EARLIER.replace("REST", REST))
    ended = workplace.run("-p", "Translate: {{ answer }}", "--answer-prefix", "to_", "--json", source="first.jsonl")
    assert ended.code == 3, ended.err
    assert ended.json()["counts"] == {"ok": 1, "skipped": 1}
    assert ended.json()["requests"] == 1
    assert workplace.output()[1]["_error"] == "the column answer is empty: row 1 was refused in the earlier run"
    sent = workplace.run("-p", "Say it: {{ id }}", "--answer-prefix", "to_", "-o", "b.jsonl", source="first.jsonl")
    assert sent.code == 0, "a prompt that needs nothing of what is missing"
