"""What a row does next: one pure function from its state and what was seen to Wait, Move or Done.

Retry, repair, cascade and failover are branches of `next_step` and live nowhere else.  It must not know of
clocks, lanes or stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from rowmill.core.limits.rate import Need, Reservation
from rowmill.core.replies.answers import Fallback
from rowmill.errors import FailureKind
from rowmill.failure_kinds import ENDS_AS, RETRIED, WAITS_ALONE
from rowmill.records import STATUS_OK, Answer, Failure, RawReply, Record, Request, Row, Status


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often and for how long a row is tried; see CONTRACT for defaults.  Seconds; `attempts` >= 1.

    `repair` is how often an invalid answer is asked for again; `fallback` what stands in when a row ends badly;
    rows that would end with a status in `cascade` go on to the next endpoint instead.
    """

    attempts: int = 4
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    row_timeout_s: float = 900.0
    repair: int = 0
    fallback: Fallback | None = None
    cascade: frozenset[Status] = frozenset()


class RowState(msgspec.Struct, eq=False, gc=False):
    """One row on its way: what has been asked, sent and used up so far.

    `attempts` counts requests that used up an attempt, `requests` those that the output shows (sent, not
    throttled), `cost_usd` what they have cost, None once that of one is unknown; `reserved_usd` is what the budget
    holds back for the send at hand.  `busy_s` is the row's own clock: its attempts and its own back-off, not the
    lane's waits.  `send_number` numbers the lane's sends; `sent_at` is Unix time, `sent_at_s` the loop's.
    `lane_failures` counts sends that ended in what looked like the lane's trouble, `oks_before` the lane's
    successes at the last of them, `oks_at_start` at its first send; `suspect` says that the row itself was the
    trouble once.  `repairs` counts the repairs asked for: each used one of `attempts` and gives it back.
    `held` is what the next send has reserved of the quota, by `need`.  `is_new`: nothing was ever sent for the row.

    With several endpoints, by their index in the job: `assigned_lane` is the one the row is meant for (None: whoever is
    free), `passed` those that have had their say, `attempts_at` what it used up where it is not now.
    """

    row: Row
    assigned_lane: int | None = None
    passed: frozenset[int] = frozenset()
    attempts_at: dict[int, int] | None = None
    request: Request | None = None
    unread: RawReply | None = None
    attempts: int = 0
    reserved_usd: float = 0.0
    requests: int = 0
    repairs: int = 0
    lane_failures: int = 0
    oks_before: int = 0
    oks_at_start: int = 0
    suspect: bool = False
    is_new: bool = True
    busy_s: float = 0.0
    send_number: int = 0
    sent_at_s: float = 0.0
    sent_at: float = 0.0
    request_bytes: int = 0
    need: Need | None = None
    held: Reservation | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = 0.0
    latency_s: float | None = None
    model: str | None = None


def first_state(row: Row, assigned_lane: int | None = None) -> RowState:
    """A row's state as this session finds it; `assigned_lane` as in `RowState`."""
    state = RowState(row, assigned_lane)
    if row.unread is not None:
        state.unread = row.unread
    if row.lane_failures:
        state.lane_failures = row.lane_failures
        state.suspect = True
    if row.spent is not None:
        state.is_new = False
        state.requests = row.spent.requests
        state.input_tokens = row.spent.input_tokens
        state.output_tokens = row.spent.output_tokens
        state.cost_usd = row.spent.cost_usd
    return state


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again once `delay_s` have passed and the lane is open; the row holds no slot meanwhile.

    `repair` asks for `answers.repair_messages` instead of the same request, and for one more in `state.repairs`.
    """

    delay_s: float
    why: Failure
    repair: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """The row is done with this endpoint, as `why` says, and goes on to the next one."""

    why: Failure


class Done(Record, frozen=True):
    """The row has ended with this status.  `refusal` names what a whole job would be refused for alike."""

    status: Status
    answer: Mapping[str, object] | None
    error: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


def next_step(
    state: RowState, seen: Answer | Failure, rules: RetryRules, *, uses_attempt: bool, random: Callable[[], float]
) -> Wait | Move | Done:
    """Decides from what one attempt has shown.

    `uses_attempt` says whether the attempt counts against the row (false where the fault is the lane's).  `random`
    gives [0, 1).  Back-off is exponential with full jitter (Brooker, "Exponential Backoff And Jitter", 2015).
    """
    if type(seen) is Answer:
        return Done(STATUS_OK, seen.values, None, seen.reasoning)
    assert isinstance(seen, Failure)
    if not uses_attempt:
        return Wait(random() * rules.backoff_s if seen.kind in WAITS_ALONE else 0.0, seen)
    if seen.kind is FailureKind.INVALID:
        if state.repairs < rules.repair and state.busy_s < rules.row_timeout_s:
            return Wait(0.0, seen, repair=True)
        return _ended(seen, _unrepaired(state, seen), rules)
    if not _may_retry(seen):
        return _ended(seen, seen.message, rules)
    tries = state.attempts - state.repairs
    if tries >= rules.attempts:
        return _ended(seen, _used_up(state, seen), rules)
    ceiling_s = min(rules.max_backoff_s, rules.backoff_s * 2.0 ** (tries - 1))
    delay_s = max(random() * ceiling_s, seen.retry_after_s or 0.0)
    if state.busy_s + delay_s >= rules.row_timeout_s:
        error = f"{seen.message} (row_timeout_s of {rules.row_timeout_s:g} s reached)"
        return _ended(seen, error, rules)
    return Wait(delay_s, seen)


def change_lane(state: RowState, old: int, new: int) -> None:
    """Makes a row begin at another endpoint: what it used up and what it looked like are counted at each apart."""
    elsewhere = state.attempts_at or {}
    elsewhere[old] = state.attempts - state.repairs
    state.attempts_at = elsewhere
    state.attempts = elsewhere.get(new, 0)
    state.repairs = 0
    state.lane_failures = state.oks_before = state.oks_at_start = state.send_number = 0
    state.suspect = False
    state.request = None
    state.need = None


def _may_retry(failure: Failure) -> bool:
    return failure.kind in RETRIED if failure.retry is None else failure.retry


def _used_up(state: RowState, failure: Failure) -> str:
    return failure.message if state.attempts == 1 else f"{failure.message} ({state.attempts} attempts)"


def _unrepaired(state: RowState, failure: Failure) -> str:
    if state.repairs == 0:
        return failure.message
    times = "a repair" if state.repairs == 1 else f"{state.repairs} repairs"
    return f"{failure.message} (after {times})"


def _ended(failure: Failure, error: str, rules: RetryRules) -> Move | Done:
    status = ENDS_AS[failure.kind]
    if status in rules.cascade:
        return Move(failure)
    fallback = rules.fallback
    if fallback is not None and status in fallback.statuses:
        return Done(Status.FALLBACK, fallback.values, f"{status}: {error}", failure.reasoning)
    refusal = None
    if failure.kind is FailureKind.BAD_REQUEST:
        refusal = f"{failure.status_code} {failure.code} {failure.param}"
    return Done(status, failure.values, error, failure.reasoning, refusal)
