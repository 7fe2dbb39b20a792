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
    """How often and for how long a row is tried.  Times are in seconds; `attempts` >= 1.

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


class Trouble(msgspec.Struct, eq=False, gc=False):
    """What a row has met at its endpoint that may be the endpoint's fault or its own; the breaker's.

    `lane_failures` counts such sends, `oks_before` is the lane's successes at the last of them; `is_suspect` says that
    the row itself was the trouble once.
    """

    lane_failures: int = 0
    oks_before: int = 0
    is_suspect: bool = False


class Journey(msgspec.Struct, eq=False, gc=False):
    """Where a row has been, by the lanes' indices; failover's.

    `passed` are the lanes that a cascade has left behind; `attempts_at` is what the row used up where it is not now.
    """

    passed: frozenset[int] = frozenset()
    attempts_at: dict[int, int] = {}


class RowState(msgspec.Struct, eq=False, gc=False):
    """One row on its way, its fields by their owners.

    There is one a row: what most rows never need is in records of its own, None until then (`Journey`, `Trouble`).
    """

    row: Row

    # Failover: the lane that the row is meant for, by its index (None: whoever is free).
    assigned_lane: int | None = None
    journey: Journey | None = None

    # Worker: the request to send; `unread`: a stored reply to read first.  `is_new`: nothing was ever sent for the row.
    request: Request | None = None
    unread: RawReply | None = None
    is_new: bool = True

    # Lane and breaker: the send at hand.  `send_number` counts the lane's sends, `oks_at_start` is its successes at the
    # row's first; `sent_at` is Unix time, `sent_at_s` the loop's.
    send_number: int = 0
    oks_at_start: int = 0
    sent_at_s: float = 0.0
    sent_at: float = 0.0
    trouble: Trouble | None = None

    # Rate gate and budget gate: what the send at hand needs and holds (`held` by `need`; `reserved_usd`: at worst).
    request_bytes: int = 0
    need: Need | None = None
    held: Reservation | None = None
    reserved_usd: float = 0.0

    # `next_step`: requests that used up an attempt; repairs asked for (each used an attempt and gives it back); the
    # row's own clock: its attempts and its own back-off, not the lane's waits.
    attempts: int = 0
    repairs: int = 0
    busy_s: float = 0.0

    # The outcome: requests that were sent and not throttled, and what they brought.  `cost_usd` is None once the cost
    # of one is unknown.
    requests: int = 0
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
        state.trouble = Trouble(row.lane_failures, is_suspect=True)
    if row.spent is not None:
        state.is_new = False
        state.requests = row.spent.requests
        state.input_tokens = row.spent.input_tokens
        state.output_tokens = row.spent.output_tokens
        state.cost_usd = row.spent.cost_usd
    return state


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again once `delay_s` have passed and the lane may send; the row holds no slot meanwhile.

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
    """The row has ended with this status.  `refusal` names one that every row may meet: status, code, parameter."""

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
        may_repair = seen.retry is not False and state.repairs < rules.repair
        if may_repair and state.busy_s < rules.row_timeout_s:
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


def trouble_of(state: RowState) -> Trouble:
    """The row's record of trouble, begun if there is none."""
    if state.trouble is None:
        state.trouble = Trouble()
    return state.trouble


def journey_of(state: RowState) -> Journey:
    """The row's record of where it has been, begun if there is none."""
    if state.journey is None:
        state.journey = Journey()
    return state.journey


def has_passed(state: RowState, lane: int) -> bool:
    """Whether a cascade has left the lane behind."""
    return state.journey is not None and lane in state.journey.passed


def change_lane(state: RowState, old: int, new: int) -> None:
    """Moves a row to another endpoint, where it begins anew: attempts and trouble are counted at each apart."""
    elsewhere = journey_of(state).attempts_at
    elsewhere[old] = state.attempts - state.repairs
    state.attempts = elsewhere.get(new, 0)
    state.repairs = state.oks_at_start = state.send_number = 0
    state.trouble = None
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
    return Done(status, failure.values, error, reasoning=failure.reasoning, refusal=refusal)
