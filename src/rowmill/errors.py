"""The error tree and the kinds of failure.

Exceptions mean that the job cannot go on.  A row that ends badly is data, not an exception: it is an
`Outcome` with a `Failure` (see `records`).

    RowmillError
    ├── JobError            exit 2: nothing was sent
    │   ├── SourceError       the input cannot be opened or read
    │   ├── OutputError       the output cannot be written, or its columns clash
    │   ├── DatabaseError     a database cannot be reached, refuses, or broke off
    │   ├── RunFileError      the run file is damaged, too new, or missing
    │   ├── LockedError       another process writes this run file
    │   └── ChangedError      the job differs from the one that answered the finished rows
    ├── StoreFullError      exit 4: the disk is full; what was committed is safe
    ├── StoppedError        rows are left: the run ended early, and goes on when it is called again
    └── RowError            one row ended badly, where values and not statuses are handed back
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum


class RowmillError(Exception):
    """Base of everything that Rowmill raises on purpose; its text is fit to show to the user."""


class JobError(RowmillError):
    """The job, its input or its output is wrong; nothing was sent.

    `faults` holds every fault found, one sentence each, with its line where there is one.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults: Sequence[str] = faults


class SourceError(JobError):
    """The input cannot be opened or read."""


class OutputError(JobError):
    """The output cannot be written there, or its columns clash."""


class DatabaseError(JobError):
    """A database cannot be reached, refuses what was asked, or broke off."""


class RunFileError(JobError):
    """The run file is damaged, made by a newer Rowmill, or not there."""


class LockedError(JobError):
    """Another process writes this run file."""


class ChangedError(JobError):
    """The job differs from the one under which finished rows were answered."""


class StoreFullError(RowmillError):
    """The run file cannot grow: the disk is full.  What was committed is safe."""


class StoppedError(RowmillError):
    """Rows are left: the run ended early.  What was answered stands in `run_file`, None where it was in memory.

    `reason` is a StopReason.
    """

    def __init__(self, message: str, reason: str, run_file: str | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.run_file = run_file


class RowError(RowmillError):
    """One row ended badly; `row` is its 0-based index in the input, `status` how it ended."""

    def __init__(self, message: str, row: int, status: str) -> None:
        super().__init__(message)
        self.row = row
        self.status = status


class FailureKind(StrEnum):
    """What went wrong with one attempt; the table in `failure_kinds` says what each means and what follows."""

    THROTTLED = "throttled"
    QUOTA = "quota"
    CREDENTIALS = "credentials"
    FORBIDDEN = "forbidden"
    MODEL_MISSING = "model_missing"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    TLS = "tls"
    TIMEOUT = "timeout"
    SERVER = "server"
    EXCEPTION = "exception"
    UNREADABLE = "unreadable"
    BAD_REQUEST = "bad_request"
    CONTEXT_LENGTH = "context_length"
    FILTERED = "filtered"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    INVALID = "invalid"
    TEMPLATE = "template"


class StopReason(StrEnum):
    """Why a run ended; `exit_code` gives the process's exit code."""

    FINISHED = "finished"
    BUDGET = "budget"
    QUOTA = "quota"
    CREDENTIALS = "credentials"
    MODEL_MISSING = "model_missing"
    HOPELESS = "hopeless"
    TLS = "tls"
    FAILURE_RATE = "failure_rate"
    OUTAGE = "outage"
    MAX_DURATION = "max_duration"
    DISK_FULL = "disk_full"
    SOURCE = "source"  # the input broke off while it was read
    OUTPUT = "output"  # every row is answered, but the output could not be written
    DECLINED = "declined"  # the user did not approve of the quote
    INTERRUPTED = "interrupted"  # SIGINT
    TERMINATED = "terminated"  # SIGTERM


class ExitCode(IntEnum):
    """How the process ends."""

    FINISHED = 0
    BUG = 1
    NOTHING_SENT = 2  # a JobError
    BAD_ROWS = 3  # finished, and some rows ended badly
    STOPPED = 4
    INTERRUPTED = 130
    TERMINATED = 143


SIGNAL_REASONS: Mapping[int, StopReason] = {
    signal.SIGINT: StopReason.INTERRUPTED,
    signal.SIGTERM: StopReason.TERMINATED,
    # The terminal has gone.  Not there on every platform.
    **({signal.SIGHUP: StopReason.TERMINATED} if hasattr(signal, "SIGHUP") else {}),
}


def exit_code(reason: StopReason, *, has_bad_rows: bool = False) -> ExitCode:
    """The process's exit code after a run."""
    match reason:
        case StopReason.FINISHED:
            return ExitCode.BAD_ROWS if has_bad_rows else ExitCode.FINISHED
        case StopReason.INTERRUPTED:
            return ExitCode.INTERRUPTED
        case StopReason.TERMINATED:
            return ExitCode.TERMINATED
        case _:
            return ExitCode.STOPPED
