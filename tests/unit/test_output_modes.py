"""What an output may be read by: what is replaced keeps its mode, what is new follows the umask."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from rowmill.errors import OutputError
from rowmill.io.sinks.atomic import AtomicFile


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
