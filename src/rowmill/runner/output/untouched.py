"""Owns what a run has left as its output and failures: a file that somebody has changed since is never written over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rowmill.core.names.files import failures_path, is_remote
from rowmill.errors import OutputError, RowmillError
from rowmill.io.files import stamp
from rowmill.io.sinks import translated
from rowmill.job import Job
from rowmill.store import changes
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer


class Left(NamedTuple):
    """The stamps of all files that the run has written, by path.

    `is_writing` is true from before a file is written until its stamp is known: who is killed in between has left one
    that is not among them.
    """

    stamps: Mapping[str, Any]
    is_writing: bool = False

    def check(self, names: Sequence[str]) -> None:
        """Raises OutputError for a file that is there and not as the run has left it."""
        for name in names:
            found = _stamp(name)
            if found and found not in self.stamps.values():
                raise OutputError(
                    f"{name} is not as this run left it: it was written to since, and that would be lost; "
                    "move it away, then run the same command again"
                )

    def with_stamps(self, names: Sequence[str]) -> Left:
        """With these files as they are now."""
        return Left({**self.stamps, **{_absolute(name): _stamp(name) for name in names}})


def keep_edits(job: Job, run_file: Path) -> None:
    """Raises OutputError where output or failures were changed by others since the run wrote them.

    Of a run file that does not know what was written before, what is there counts as written by the run.
    """
    names = _names(job)
    with RunFileReader(run_file, checked=False) as reader:
        left, before = _left_of(reader), _written_before(reader)
    if left is None or left.is_writing:
        left = Left({**Left({}).with_stamps(names).stamps, **before})
        _remember(run_file, left)
    left.check(names)


@contextmanager
def writing(job: Job, reader: RunFileReader) -> Iterator[None]:
    """While output and failures are written; whatever happens, the run knows afterwards what is its own."""
    names, run_file = _names(job), reader.path
    left = _left_of(reader) or Left({})
    if not left.is_writing:
        left.check(names)
    _remember(run_file, left._replace(is_writing=True))
    try:
        yield
    except Exception:
        with suppress(RowmillError):  # a full disk: what is there will count as the run's own
            _remember(run_file, left.with_stamps(names))
        raise
    _remember(run_file, left.with_stamps(names))


def _names(job: Job) -> list[str]:
    failures = failures_path(job.stem)
    return [failures] if job.target is not None else [job.output, failures]


def _left_of(reader: RunFileReader) -> Left | None:
    text = reader.metadata("left")
    return None if text is None else Left(**json.loads(text))


def _written_before(reader: RunFileReader) -> dict[str, Any]:
    """The output as a run file of an earlier Rowmill remembers it."""
    text = reader.metadata("written")
    if text is None:
        return {}
    path, found, *_ = json.loads(text)
    return {str(path): found} if isinstance(found, list) else {}


def _remember(run_file: Path, left: Left) -> None:
    text = json.dumps(left._asdict(), ensure_ascii=False)
    writer = Writer(run_file)
    try:
        writer.do(lambda connection: changes.remember_left(connection, text))
    finally:
        writer.close(None)


def _absolute(name: str) -> str:
    return name if is_remote(name) else os.path.abspath(name)


def _stamp(name: str) -> list[Any] | None:
    with translated(name):
        return stamp(name)
