"""Source, output, failures and run file may never be one file: writing the one would take the other away.

Files are compared by what they are (links followed), not by what they are called.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import combinations

from rowmill.core.names.databases import DatabaseUrl
from rowmill.core.names.files import is_remote, source_parts
from rowmill.errors import OutputError
from rowmill.job import Job

Named = tuple[str, str]  # what a file is to the job, its path


def job_files(job: Job, run_file: str, failures: str) -> list[list[Named]]:
    """The files of a job, by what they are: the sources, and one list each for what is written.

    One database may be source and output: tables are told apart elsewhere.
    """
    is_one_database = isinstance(job.source, DatabaseUrl) and isinstance(job.output, DatabaseUrl)
    sources = [] if is_one_database else [("the source", path) for path in _sources(job.source)]
    output = [("the output", path) for path in _sources(job.output)]
    return [sources, output, [("the file of failures", failures)], [("the run file", run_file)]]


def check_distinct(files: Sequence[Sequence[Named]]) -> None:
    """Raises OutputError where two files of different lists are one."""
    for one, other in combinations(files, 2):
        for (what, path), (as_what, other_path) in ((left, right) for left in one for right in other):
            if is_same_file(path, other_path):
                raise OutputError(
                    f"{what} ({path}) and {as_what} ({other_path}) are one file, which would be lost; name another"
                )


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, there or not yet there."""
    if is_remote(one) or is_remote(other):
        return one == other
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _sources(name: str) -> list[str]:
    if isinstance(name, DatabaseUrl):
        return [str(name.path)] if name.kind != "postgresql" else []
    if name == "-" or not name:
        return []
    names = source_parts(name)
    return [path for one in names for path in ([one] if is_remote(one) else sorted(glob.glob(one)) or [one])]
