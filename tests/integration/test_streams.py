"""Closed, full and narrow standard streams: a command ends as it would, and never with a traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.workplace import Workplace, own_tokens


def shell(
    workplace: Workplace, redirections: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "rowmill", *arguments]
    return subprocess.run(
        words,
        cwd=workplace.folder,
        env={**workplace.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "redirections", ["2>&-", "<&-", ">&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full", ">/dev/full 2>&1"]
)
def test_a_run_ends_as_it_would_whatever_its_streams_are(workplace: Workplace, redirections: str) -> None:
    workplace.write_rows(5)
    ended = shell(workplace, redirections, *workplace.arguments("in.csv", "--json"))
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "bug" not in ended.stderr
    assert own_tokens(workplace.output())
    assert workplace.rowmill("status", "out.jsonl", "--json").json()["state"] == "finished"


def test_output_that_cannot_be_written_is_told_after_a_run(workplace: Workplace) -> None:
    workplace.write_rows(2)
    ended = shell(workplace, ">/dev/full", *workplace.arguments("in.csv", "--json"))
    assert "cannot write to standard output: No space left on device" in ended.stderr
    assert "Finished: 2 rows" in ended.stderr


@pytest.mark.parametrize("command", [["status", "out.jsonl"], ["rows", "out.jsonl"], ["--help"], ["run", "--help"]])
def test_a_command_that_has_nowhere_to_write_to_says_so(workplace: Workplace, command: list[str]) -> None:
    workplace.write_rows(2)
    workplace.run()
    ended = shell(workplace, ">/dev/full", *command)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.strip() == "rowmill: error: cannot write to standard output: No space left on device"


@pytest.mark.parametrize("arguments", [["rows", "out.jsonl"], ["rows", "out.jsonl", "--json"], ["check", "in.csv"]])
def test_characters_that_an_encoding_cannot_show_end_no_command(workplace: Workplace, arguments: list[str]) -> None:
    workplace.write("in.csv", "id,text\n0,[[row-0]] \U0001f600 \u0107\n")
    more = ["-p", "{{ text }}", "-m", "sim", "--url", workplace.simulator.url]
    assert workplace.run().code == 0
    ended = shell(workplace, "", *arguments, *(more if arguments[0] == "check" else []), PYTHONIOENCODING="latin-1")
    assert ended.returncode == 0, ended.stderr
    if "--json" in arguments:
        assert json.loads(ended.stdout)["input"]["text"].startswith("[[row-0]] \U0001f600")
