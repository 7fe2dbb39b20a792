"""No command writes over what another part of the job needs, whatever the files are called."""

from __future__ import annotations

import contextlib
import sqlite3
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
    assert "are one file" in ended.err, ended.err
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


def test_an_export_overwrites_no_file_of_failures(done: Workplace) -> None:
    done.write("out.jsonl.failed.jsonl", "rows to look at\n")
    refused(done, "export", "out.jsonl", "-o", "out.jsonl.failed.jsonl")


@pytest.mark.parametrize("target", ["job.yaml", "prompt.txt", "schema.json", "key.txt"])
def test_an_export_overwrites_no_file_that_the_job_was_read_from(workplace: Workplace, target: str) -> None:
    workplace.write_rows(2)
    workplace.write("prompt.txt", "Say it: {{ text }}")
    workplace.write("schema.json", '{"type": "object", "properties": {"said": {"type": "string"}}}')
    workplace.write("key.txt", "sk-1234567890")
    endpoint = f"{{model: sim, url: {workplace.simulator.url}, key_file: key.txt}}"
    workplace.write(
        "job.yaml",
        f"source: in.csv\nprompt: '@prompt.txt'\nanswer: {{schema: schema.json}}\nendpoints: [{endpoint}]\n"
        "output: out.jsonl\n",
    )
    workplace.rowmill("run", "job.yaml")
    refused(workplace, "export", "out.jsonl", "-o", target, "--format", "jsonl")


def test_a_job_file_is_no_output_of_its_job(workplace: Workplace) -> None:
    workplace.write_rows(2)
    workplace.write(
        "job.yaml",
        f"source: in.csv\nprompt: 'Say it: {{{{ text }}}}'\n"
        f"endpoints: [{{model: sim, url: {workplace.simulator.url}}}]\noutput: out.jsonl\n",
    )
    refused(workplace, "run", "job.yaml", "-o", "./job.yaml", "--format", "jsonl")


def test_a_database_that_is_read_is_no_run_file_of_an_output_in_another(workplace: Workplace) -> None:
    with contextlib.closing(sqlite3.connect(workplace.folder / "in.db")) as database:
        database.execute("CREATE TABLE rows (id INTEGER, text TEXT)")
    words = workplace.arguments("sqlite:///in.db", "-o", "sqlite:///out.db", "--table", "said", "--run-file", "in.db")
    refused(workplace, *words, "--query", "SELECT * FROM rows")


def test_brackets_in_the_name_of_an_output_are_no_pattern(workplace: Workplace) -> None:
    workplace.write_rows(2, name="out1.csv")
    assert workplace.run("-o", "out[1].csv", source="out1.csv").code == 0
    refused(workplace, "export", "out[1].csv", "-o", "out1.csv", "--run-file", "out[1].csv.rowmill")


def test_parts_do_not_take_the_place_of_the_folder_that_the_source_is_in(workplace: Workplace) -> None:
    (workplace.folder / "rows").mkdir()
    workplace.write_rows(2, name="rows/part-1.csv")
    assert workplace.run(source="rows/part-1.csv").code == 0
    ended = workplace.rowmill("export", "out.jsonl", "-o", "rows", "--format", "csv", "--split-rows", "1")
    assert ended.code == 2
    assert "lies in the folder" in ended.err
    assert (workplace.folder / "rows" / "part-1.csv").exists()
