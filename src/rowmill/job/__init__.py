"""The job: all that the user decides, validated once; it knows nothing of how a job is run."""

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
