"""Several files on the command line, as an unquoted `*.csv` gives them, are one source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.workplace import Workplace


def write_files(workplace: Workplace) -> None:
    workplace.write("b.csv", "id,text\n0,[[row-0]]\n1,[[row-1]]\n")
    workplace.write("a.csv", "id,text\n2,[[row-2]]\n")


def options(workplace: Workplace) -> list[str]:
    return ["-p", "{{ text }}", "-m", "sim", "--url", workplace.simulator.url, "-o", "out.jsonl"]


def test_several_files_are_run_as_one_in_the_order_given(workplace: Workplace) -> None:
    write_files(workplace)
    ended = workplace.rowmill("run", "b.csv", "a.csv", *options(workplace))
    assert ended.code == 0, ended.err
    assert [row["answer"] for row in workplace.output()] == ["row-0", "row-1", "row-2"]
    assert "nothing was sent" in workplace.rowmill("run", "b.csv", "a.csv", *options(workplace)).err
    assert workplace.rowmill("check", "b.csv", "a.csv", *options(workplace)).code == 0


def test_several_files_in_a_job_file(workplace: Workplace) -> None:
    write_files(workplace)
    endpoint = {"model": "sim", "url": workplace.simulator.url}
    job = {"source": ["b.csv", "a.csv"], "prompt": "{{ text }}", "output": "out.jsonl", "endpoints": [endpoint]}
    workplace.write("job.yaml", json.dumps(job))
    assert workplace.rowmill("run", "job.yaml").code == 0
    assert len(workplace.output()) == 3


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (["a.csv", "job.yaml"], "job.yaml is a job file"),
        (["a.csv", "-"], "- cannot be one of several files"),
        (["a.csv", "sqlite:///x.db"], "sqlite:///x.db cannot be one of several"),
        (["a.csv", "missing.csv"], "missing.csv: there is no such file"),
        (["a.csv", "c.jsonl"], "different kinds"),
    ],
)
def test_what_cannot_be_one_of_several_is_refused_by_name(workplace: Workplace, sources: list[str], words: str) -> None:
    write_files(workplace)
    workplace.write("job.yaml", "source: a.csv\n")
    workplace.write("c.jsonl", "{}\n")
    ended = workplace.rowmill("run", *sources, *options(workplace))
    assert ended.code == 2
    assert words in ended.err


def test_several_files_need_an_output(workplace: Workplace) -> None:
    write_files(workplace)
    ended = workplace.rowmill("run", "a.csv", "b.csv", *options(workplace)[:-2])
    assert ended.code == 2
    assert "-o/--output" in ended.err


def test_one_of_several_files_may_not_be_the_output(workplace: Workplace) -> None:
    write_files(workplace)
    ended = workplace.rowmill("run", "a.csv", "b.csv", *options(workplace)[:-1], "b.csv")
    assert ended.code == 2
    assert "b.csv" in ended.err
