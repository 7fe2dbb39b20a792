"""Source, output, failures, run file and the files of a job may never be one: writing the one would take another away.

Files are compared by what they are (links followed), not by what they are called.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from rowmill.core.names.databases import DatabaseUrl
from rowmill.core.names.files import is_remote, source_parts
from rowmill.errors import OutputError, SourceError
from rowmill.io.sources.files import find_files
from rowmill.job import Job

Named = tuple[str, str]  # what a file is to the job, its path


class JobFiles(NamedTuple):
    """The files of a job by what they are to it; what is in one list may be one file."""

    read: Sequence[Named]
    output: Sequence[Named]
    failures: Sequence[Named]
    run_file: Sequence[Named]


def job_files(job: Job, run_file: str, failures: str) -> JobFiles:
    """One database may be source and output: tables are told apart elsewhere."""
    sources = [("the source", path) for path in _sources(job.source)]
    named = [*job.files, *_files_of_endpoints(job)]
    output = [("the output", path) for path in _written(job.output)]
    if isinstance(job.source, DatabaseUrl) and isinstance(job.output, DatabaseUrl):
        sources, output = [], [*sources, *output]
    return JobFiles([*sources, *named], output, [("the file of failures", failures)], [("the run file", run_file)])


def check_distinct(files: Sequence[Sequence[Named]]) -> None:
    """Raises OutputError where two files of different lists are one, or one is a folder that holds the other."""
    for one, other in combinations(files, 2):
        for left, right in ((left, right) for left in one for right in other):
            (what, path), (as_what, other_path) = left, right
            if is_same_file(path, other_path):
                raise OutputError(
                    f"{what} ({path}) and {as_what} ({other_path}) are one file, which would be lost; name another"
                )
            for (what, path), (folder_of, folder) in ((left, right), (right, left)):
                if _lies_in(path, folder):
                    raise OutputError(f"{what} ({path}) lies in the folder of {folder_of} ({folder}); name another")


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, there or not yet there."""
    if is_remote(one) or is_remote(other):
        return one == other
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _lies_in(path: str, folder: str) -> bool:
    if is_remote(path) or is_remote(folder):
        return path.startswith(folder.rstrip("/") + "/")
    return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)


def _sources(name: str) -> list[str]:
    if isinstance(name, DatabaseUrl) or is_remote(name):
        return _written(name)
    if name == "-":
        return []
    try:
        return find_files(name)
    except SourceError:  # said where the source is opened; `retry` needs none
        return [part for part in source_parts(name) if not os.path.isdir(part)]


def _written(name: str) -> list[str]:
    """The file of an output, whose name is never a pattern."""
    if isinstance(name, DatabaseUrl):
        return [str(name.path)] if name.kind != "postgresql" else []
    return [name]


def _files_of_endpoints(job: Job) -> list[Named]:
    kinds = (("the key file", "key_file"), ("the file of certificates", "ca_file"))
    found = ((what, getattr(endpoint, key)) for endpoint in job.endpoints for what, key in kinds)
    return [(what, path) for what, path in found if path is not None]
