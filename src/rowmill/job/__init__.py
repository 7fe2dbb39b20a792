"""The job: all that the user decides, validated once; it knows nothing of how a job is run.

What it offers is loaded when it is first asked for: the command line reads the table of options, and `--help` must
not wait for the checks of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowmill.job.edit import write_values
    from rowmill.job.load import apply_overrides, job_from_options, load_job
    from rowmill.job.model import AnswerSpec, EndpointSpec, Job, RetrySpec
    from rowmill.job.version import definition, difference, fingerprint

__all__ = [
    "AnswerSpec",
    "EndpointSpec",
    "Job",
    "RetrySpec",
    "apply_overrides",
    "definition",
    "difference",
    "fingerprint",
    "job_from_options",
    "load_job",
    "write_values",
]

_MODULES: Mapping[str, str] = {
    "apply_overrides": "rowmill.job.load",
    "definition": "rowmill.job.version",
    "difference": "rowmill.job.version",
    "fingerprint": "rowmill.job.version",
    "job_from_options": "rowmill.job.load",
    "load_job": "rowmill.job.load",
    "write_values": "rowmill.job.edit",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'rowmill.job' has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES.get(name, "rowmill.job.model")), name)
    globals()[name] = found
    return found
