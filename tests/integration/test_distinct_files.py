"""No command writes over what another part of the job needs, whatever the files are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.workplace import Workplace


@pytest.fixture
def done(workplace: Workplace) -> Workplace:
    """A finished run of three rows: in.csv, out.jsonl and its run file."""
    workplace.write_rows(3)
    assert workplace.run().code == 0
    return workplace


def contents(workplace: Workplace) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(workplace.folder).iterdir() if path.suffix != ".lock"}


def refused(workplace: Workplace, *words: str) -> None:
    before = contents(workplace)
    ended = workplace.rowmill(*words)
    assert ended.code == 2, ended.err
    assert "are one file" in ended.err or "is the job file itself" in ended.err, ended.err
    after = contents(workplace)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("target", ["out.jsonl.rowmill", "./out.jsonl.rowmill", "link.rowmill", "in.csv", "hard.csv"])
def test_an_export_overwrites_neither_run_file_nor_input(done: Workplace, target: str) -> None:
    folder = Path(done.folder)
    (folder / "link.rowmill").symlink_to(folder / "out.jsonl.rowmill")
    (folder / "hard.csv").hardlink_to(folder / "in.csv")
    refused(done, "export", "out.jsonl", "-o", target, "--format", "jsonl" if "csv" not in target else "csv")


def test_a_run_file_is_not_its_output(workplace: Workplace) -> None:
    workplace.write_rows(3)
    refused(workplace, *workplace.arguments("in.csv", "--run-file", "out.jsonl"))


def test_a_run_deletes_no_source_as_its_file_of_failures(workplace: Workplace) -> None:
    workplace.write("r.jsonl.failed.jsonl", '{"id": 1, "text": "[[row-1]]"}\n')
    words = list(workplace.arguments("r.jsonl.failed.jsonl"))
    words[words.index("-o") + 1] = "r.jsonl"
    refused(workplace, *words)


def test_an_output_is_not_its_source(workplace: Workplace) -> None:
    workplace.write_rows(3)
    words = list(workplace.arguments("in.csv"))
    words[words.index("-o") + 1] = "./in.csv"
    refused(workplace, *words)


def test_one_file_of_many_is_a_source_too(workplace: Workplace) -> None:
    workplace.write_rows(3)
    words = list(workplace.arguments("*.csv"))
    words[words.index("-o") + 1] = "in.csv"
    refused(workplace, *words)
