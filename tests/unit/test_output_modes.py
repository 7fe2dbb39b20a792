"""What an output may be read by: what is replaced keeps its mode, what is new follows the umask."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from rowmill.core.rows.outputs import OutputColumns
from rowmill.errors import OutputError
from rowmill.io.sinks.atomic import AtomicFile
from rowmill.io.sinks.jsonl import JsonlSink
from rowmill.io.sinks.parts import PartsSink
from rowmill.io.sinks.settings import OutputShape, SinkSettings
from rowmill.job.edit import write_values


def written(path: Path) -> int:
    file = AtomicFile(str(path))
    file.write(b"x")
    file.commit()
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_an_output_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "out.jsonl").touch()
    (tmp_path / "out.jsonl").chmod(mode)
    assert written(tmp_path / "out.jsonl") == mode


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_output_follows_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        assert written(tmp_path / "out.jsonl") == mode
    finally:
        os.umask(before)


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / f".out.jsonl.{os.getpid()}.tmp").symlink_to(precious)
    with contextlib.suppress(OutputError):
        written(tmp_path / "out.jsonl")
    assert precious.read_text() == "mine"


def test_what_replaces_a_private_output_is_private_from_its_first_moment(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").touch(mode=0o600)
    before, opened = os.umask(0), os.open
    modes = []

    def watched(path: Path, flags: int, mode: int = 0o777) -> int:
        modes.append(mode)
        return opened(path, flags, mode)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", watched)
            AtomicFile(str(tmp_path / "out.jsonl")).abort()
    finally:
        os.umask(before)
    assert modes == [0o600]


def parts(path: Path) -> PartsSink:
    shape = OutputShape("jsonl", split_rows=1)
    return PartsSink(
        str(path),
        shape,
        lambda part: JsonlSink(SinkSettings(part, OutputColumns(("a",), ()), lambda: pytest.fail("needs no types"))),
    )


def test_parts_that_are_replaced_keep_the_modes_of_folder_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o750)
    (folder / "part-00000.jsonl").touch(mode=0o640)
    sink = parts(folder)
    (unfinished,) = tmp_path.glob(".out.*")
    assert unfinished.stat().st_mode & 0o777 == 0o700
    sink.commit()
    assert folder.stat().st_mode & 0o777 == 0o750
    assert [part.stat().st_mode & 0o777 for part in folder.iterdir()] == [0o640]


def test_new_parts_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        parts(tmp_path / "out").commit()
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
    assert [part.stat().st_mode & 0o777 for part in (tmp_path / "out").iterdir()] == [0o640]


def test_a_job_file_is_changed_through_no_link_and_keeps_its_mode(tmp_path: Path) -> None:
    precious, job = tmp_path / "precious", tmp_path / "job.yaml"
    precious.write_text("mine")
    job.write_text("timeout_s: 120\n")
    job.chmod(0o640)
    (tmp_path / "job.yaml.new").symlink_to(precious)
    write_values(str(job), {("timeout_s",): 30})
    assert (precious.read_text(), job.read_text()) == ("mine", "timeout_s: 30\n")
    assert job.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "job.yaml.new", "precious"]
