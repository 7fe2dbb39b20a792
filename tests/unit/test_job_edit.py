"""Single values put into the text of a job file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rowmill.errors import JobError
from rowmill.job.edit import with_values, write_values

VALUES = {("endpoints", 0, "in_flight"): 64, ("timeout_s",): 30, ("retry", "attempts"): 3}

BLOCK = """\
# a job
source: a.csv  # the input
prompt: |
  Say it: {{ text }}

endpoints:
  # the only one
  - model: vllm/m   # small
    in_flight: 8    # to begin with
retry:
  backoff_s: 2  # slowly
timeout_s: 120
"""


def test_values_are_put_in_place_and_comments_stay() -> None:
    assert with_values(BLOCK, VALUES) == BLOCK.replace("in_flight: 8 ", "in_flight: 64 ").replace(
        "timeout_s: 120", "timeout_s: 30"
    ).replace("  backoff_s: 2  # slowly\n", "  backoff_s: 2  # slowly\n  attempts: 3\n")


def test_keys_that_are_not_there_are_added() -> None:
    text = "source: a.csv\nendpoints:\n- model: m # one\n"
    assert with_values(text, VALUES) == (
        "source: a.csv\ntimeout_s: 30\nretry: {attempts: 3}\nendpoints:\n- model: m # one\n  in_flight: 64\n"
    )


def test_flow_mappings_are_added_to() -> None:
    text = "{source: a.csv, endpoints: [{model: m}], retry: {backoff_s: 1}}\n"
    assert with_values(text, VALUES) == (
        "{source: a.csv, endpoints: [{model: m, in_flight: 64}], retry: {backoff_s: 1, attempts: 3}, timeout_s: 30}\n"
    )


def test_a_key_without_a_value_gets_one() -> None:
    text = "timeout_s:\nendpoints: [{model: m}]\nretry:\n"
    assert with_values(text, VALUES) == (
        "timeout_s: 30\nendpoints: [{model: m, in_flight: 64}]\nretry: {attempts: 3}\n"
    )


def test_line_ends_of_another_system_stay() -> None:
    text = BLOCK.replace("\n", "\r\n")
    changed = with_values(text, VALUES)
    assert changed.count("\n") == changed.count("\r\n") == text.count("\n") + 1


def test_a_text_that_ends_without_a_line_end_is_added_to() -> None:
    assert with_values("endpoints: [{model: m}]\na: b", {("timeout_s",): 30}).endswith("a: b\ntimeout_s: 30")


def test_a_block_text_at_the_end_is_not_added_to() -> None:
    text = "endpoints: [{model: m}]\nprompt: |\n  Say\n  it"
    assert with_values(text, {("timeout_s",): 30}) == ("endpoints: [{model: m}]\ntimeout_s: 30\nprompt: |\n  Say\n  it")


def test_what_another_place_shares_is_not_changed() -> None:
    text = "a: &limits {model: m, in_flight: 8}\nendpoints: [*limits]\n"
    with pytest.raises(JobError, match=r"put in yourself: endpoints\[0\]\.in_flight: 64"):
        with_values(text, {("endpoints", 0, "in_flight"): 64})


def test_a_file_is_written_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(BLOCK, encoding="utf-8")
    job.chmod(0o600)
    write_values(str(job), VALUES)
    assert "in_flight: 64 " in job.read_text(encoding="utf-8")
    assert job.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["job.yaml"]


def test_a_link_to_a_job_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(BLOCK, encoding="utf-8")
    link = tmp_path / "job.yaml"
    link.symlink_to("real.yaml")
    write_values(str(link), {("timeout_s",): 30})
    assert link.is_symlink()
    assert "timeout_s: 30" in (tmp_path / "real.yaml").read_text(encoding="utf-8")
