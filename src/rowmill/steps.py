"""What a row does next: one pure function from its state and what was seen to Send, Wait or Done.

Retry, repair, cascade and failover are branches of `next_step` and live nowhere else.  It must not know of
clocks, lanes or stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rowmill.errors import FailureKind
from rowmill.records import Answer, Failure, RawReply, Request, Row, Status

RETRIED = frozenset(
    {
        FailureKind.SERVER,
        FailureKind.TIMEOUT,
        FailureKind.UNREADABLE,
        FailureKind.RESET,
        FailureKind.THROTTLED,
        FailureKind.UNREACHABLE,
        FailureKind.FORBIDDEN,
    }
)

# These may come without a pause of the lane, so the row waits by itself.
UNPAUSED = frozenset({FailureKind.RESET, FailureKind.FORBIDDEN, FailureKind.SERVER})

ENDS_AS: Mapping[FailureKind, Status] = {
    FailureKind.FILTERED: Status.FILTERED,
    FailureKind.FORBIDDEN: Status.FILTERED,
    FailureKind.REFUSED: Status.REFUSED,
    FailureKind.TRUNCATED: Status.TRUNCATED,
    FailureKind.INVALID: Status.INVALID,
}


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often and for how long a row is tried; see CONTRACT for defaults.  Seconds; `attempts` >= 1."""

    attempts: int = 4
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    row_timeout_s: float = 900.0


class RowState:
    """One row on its way: what has been asked, sent and used up so far.

    `attempts` counts requests that used up an attempt, `requests` those that the output shows (sent, not
    throttled).  `busy_s` is the row's own clock: its attempts and its own back-off, not the lane's waits.
    `send_number` numbers the lane's sends.  `lane_failures` counts sends that ended in what looked like the lane's
    trouble, `oks_before` the lane's successes at the last of them, `oks_at_start` those at the row's first send;
    `suspect` says that the row itself was the trouble once.
    """

    __slots__ = (
        "attempts",
        "busy_s",
        "input_tokens",
        "lane_failures",
        "latency_s",
        "model",
        "oks_at_start",
        "oks_before",
        "output_tokens",
        "request",
        "requests",
        "row",
        "send_number",
        "sent_at_s",
        "suspect",
        "unread",
    )

    def __init__(self, row: Row) -> None:
        self.row = row
        self.request: Request | None = None
        self.unread: RawReply | None = row.unread
        self.attempts = 0
        self.requests = 0
        self.lane_failures = row.lane_failures
        self.oks_before = 0
        self.oks_at_start = 0
        self.suspect = row.lane_failures > 0
        self.busy_s = 0.0
        self.send_number = 0
        self.sent_at_s = 0.0
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.latency_s: float | None = None
        self.model: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again once `delay_s` have passed and the lane is open; the row holds no slot meanwhile."""

    delay_s: float
    why: Failure


@dataclass(frozen=True, slots=True)
class Done:
    """The row has ended with this status.  `refusal` names what a whole job would be refused for alike."""

    status: Status
    answer: Mapping[str, object] | None
    error: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


def next_step(
    state: RowState, seen: Answer | Failure, rules: RetryRules, *, charged: bool, random: Callable[[], float]
) -> Wait | Done:
    """Decides from what one attempt has shown.

    `charged` says whether the attempt counts against the row (false where the fault is the lane's).  `random`
    gives [0, 1).  Back-off is exponential with full jitter (Brooker, "Exponential Backoff And Jitter", 2015).
    """
    if type(seen) is Answer:
        return Done(Status.OK, seen.values, None, seen.reasoning)
    assert isinstance(seen, Failure)
    if not charged:
        return Wait(random() * rules.backoff_s if seen.kind in UNPAUSED else 0.0, seen)
    if not _may_retry(seen):
        return _ended(seen, seen.message)
    if state.attempts >= rules.attempts:
        return _ended(seen, _used_up(state, seen))
    ceiling_s = min(rules.max_backoff_s, rules.backoff_s * 2.0 ** (state.attempts - 1))
    delay_s = max(random() * ceiling_s, seen.retry_after_s or 0.0)
    if state.busy_s + delay_s >= rules.row_timeout_s:
        return _ended(seen, f"{seen.message} (row_timeout_s of {rules.row_timeout_s:g} s reached)")
    return Wait(delay_s, seen)


def _may_retry(failure: Failure) -> bool:
    return failure.kind in RETRIED if failure.retry is None else failure.retry


def _used_up(state: RowState, failure: Failure) -> str:
    return failure.message if state.attempts == 1 else f"{failure.message} ({state.attempts} attempts)"


def _ended(failure: Failure, error: str) -> Done:
    status = ENDS_AS.get(failure.kind, Status.FAILED)
    refusal = None
    if failure.kind is FailureKind.BAD_REQUEST:
        refusal = f"{failure.status_code} {failure.code} {failure.param}"
    return Done(status, failure.values, error, failure.reasoning, refusal)
