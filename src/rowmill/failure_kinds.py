"""What each kind of failure means and what follows from it: one table, and the sets that are read from its columns.

The only place that lists kinds.  It must not know how a kind is recognised, nor lanes, prices or stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from rowmill.errors import FailureKind, StopReason
from rowmill.records import Status

UNREAD = "unread"  # in the place of a kind: the reply was saved before anybody could read it


class Blame(Enum):
    """Whose fault a failure is, and so whether it uses up one of the row's attempts."""

    ROW = "row"  # uses an attempt; the server has shown that it works
    SERVER = "server"  # uses an attempt, but while the lane is broken
    ROW_OR_LANE = "row or lane"  # uses an attempt once evidence has told that it is the row
    LANE = "lane"  # never uses an attempt
    USER = "user"  # only the user can mend it: the lane is disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """One row of the table; `meaning` is a sentence of the reference, `advice` ends the message of an error reply.

    `is_retried` holds unless the server said otherwise.  `waits_alone`: it may come without a pause of the lane, so
    the row waits by itself.  `pauses`: the lane pauses at the first one.  `disables`: the reason for which the lane is
    disabled, at once, or where it `may_be_renewed` by another key after a few tries with no success between.
    `is_counted`: it is a request in the output.  `may_be_billed`: nothing tells whether the server did the work.
    `is_read_again`: a stored reply of this kind is whole and worth reading anew.  `fails_measurement`: `tune`
    counts it as failed.
    """

    kind: FailureKind
    meaning: str
    blame: Blame
    ends_as: Status = Status.FAILED
    advice: str = ""
    disables: StopReason | None = None
    is_retried: bool = False
    waits_alone: bool = False
    pauses: bool = False
    is_counted: bool = True
    may_be_billed: bool = False
    may_be_renewed: bool = False
    is_read_again: bool = False
    fails_measurement: bool = False


TABLE: tuple[KindRules, ...] = (
    KindRules(
        kind=FailureKind.THROTTLED,
        meaning="The server refused for its rate or load: 429, 529 and their like.",
        blame=Blame.ROW_OR_LANE,
        is_retried=True,
        pauses=True,
        is_counted=False,
    ),
    KindRules(
        kind=FailureKind.QUOTA,
        meaning="Money or quota is used up.",
        blame=Blame.USER,
        advice="; add credit or raise the limit at the provider",
        disables=StopReason.QUOTA,
    ),
    KindRules(
        kind=FailureKind.CREDENTIALS,
        meaning="The key is not accepted: 401; it is read again and tried a few times before the endpoint is disabled.",
        blame=Blame.ROW_OR_LANE,
        advice="; check the key",
        disables=StopReason.CREDENTIALS,
        is_retried=True,
        pauses=True,
        may_be_renewed=True,
    ),
    KindRules(
        kind=FailureKind.FORBIDDEN,
        meaning="403: the key may not do this, or this row alone is refused while others succeed.",
        blame=Blame.ROW_OR_LANE,
        ends_as=Status.FILTERED,
        disables=StopReason.CREDENTIALS,
        is_retried=True,
        waits_alone=True,
        may_be_renewed=True,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.MODEL_MISSING,
        meaning="The server has no such model.",
        blame=Blame.USER,
        advice="; check the model's name",
        disables=StopReason.MODEL_MISSING,
    ),
    KindRules(
        kind=FailureKind.UNREACHABLE,
        meaning="Nothing could be sent: no such host, connection refused, or no connection in time.",
        blame=Blame.LANE,
        is_retried=True,
        pauses=True,
        is_counted=False,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.RESET,
        meaning="The connection was lost after sending.",
        blame=Blame.ROW_OR_LANE,
        is_retried=True,
        waits_alone=True,
        may_be_billed=True,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.TLS,
        meaning="The server's certificate is not trusted.",
        blame=Blame.USER,
        disables=StopReason.TLS,
    ),
    KindRules(
        kind=FailureKind.TIMEOUT,
        meaning="There was no whole reply within `timeout_s`.",
        blame=Blame.SERVER,
        is_retried=True,
        may_be_billed=True,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.SERVER,
        meaning="The server failed: 5xx, 408, 409, 425 or 499.",
        blame=Blame.SERVER,
        is_retried=True,
        waits_alone=True,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.EXCEPTION,
        meaning="The user's function raised an exception.",
        blame=Blame.ROW,
        is_retried=True,
    ),
    KindRules(
        kind=FailureKind.UNREADABLE,
        meaning="There is a reply, but it is empty, cut off, or not in the API's format.",
        blame=Blame.SERVER,
        is_retried=True,
        may_be_billed=True,
        fails_measurement=True,
    ),
    KindRules(
        kind=FailureKind.BAD_REQUEST,
        meaning="The server refuses this request: 400, 413, 422 and their like.",
        blame=Blame.ROW,
    ),
    KindRules(
        kind=FailureKind.CONTEXT_LENGTH,
        meaning="The row is too long for the model.",
        blame=Blame.ROW,
        advice="; shorten this row's text or lower --max-tokens",
    ),
    KindRules(
        kind=FailureKind.FILTERED,
        meaning="The provider's content filter refused.",
        blame=Blame.ROW,
        ends_as=Status.FILTERED,
        is_read_again=True,
    ),
    KindRules(
        kind=FailureKind.REFUSED,
        meaning="The model declined.",
        blame=Blame.ROW,
        ends_as=Status.REFUSED,
        is_read_again=True,
    ),
    KindRules(
        kind=FailureKind.TRUNCATED,
        meaning="The reply ended at the token limit.",
        blame=Blame.ROW,
        ends_as=Status.TRUNCATED,
        is_read_again=True,
    ),
    KindRules(
        kind=FailureKind.INVALID,
        meaning="There is a reply, but it is no valid answer; `repair` asks for another.",
        blame=Blame.ROW,
        ends_as=Status.INVALID,
        is_read_again=True,
    ),
    KindRules(
        kind=FailureKind.TEMPLATE,
        meaning="The endpoint's body could not be made of this row; nothing was sent.",
        blame=Blame.ROW,
    ),
)


def _where(holds: Callable[[KindRules], bool]) -> frozenset[FailureKind]:
    return frozenset(rules.kind for rules in TABLE if holds(rules))


def _disabling(holds: Callable[[KindRules], bool]) -> Mapping[FailureKind, StopReason]:
    return {rules.kind: rules.disables for rules in TABLE if rules.disables is not None and holds(rules)}


# Made once, for they are asked at every failure.  A kind's text from the run file is found in them as well.
SERVER_FAULTS = _where(lambda rules: rules.blame is Blame.SERVER)
MAY_BE_ROWS = _where(lambda rules: rules.blame is Blame.ROW_OR_LANE)
LANE_FAULTS = MAY_BE_ROWS | _where(lambda rules: rules.blame is Blame.LANE)
RETRIED = _where(lambda rules: rules.is_retried)
WAITS_ALONE = _where(lambda rules: rules.waits_alone)
PAUSES = _where(lambda rules: rules.pauses)
UNCOUNTED = _where(lambda rules: not rules.is_counted)
MAYBE_BILLED = _where(lambda rules: rules.may_be_billed)
RENEWABLE = _where(lambda rules: rules.may_be_renewed)
READ_AGAIN = _where(lambda rules: rules.is_read_again)
FAILS_MEASUREMENT = _where(lambda rules: rules.fails_measurement)
DISABLES_AT_ONCE = _disabling(lambda rules: rules.blame is Blame.USER and not rules.may_be_renewed)
DISABLES_AFTER_TRIES = _disabling(lambda rules: rules.may_be_renewed)
ENDS_AS: Mapping[FailureKind, Status] = {rules.kind: rules.ends_as for rules in TABLE}
ADVICE: Mapping[FailureKind, str] = {rules.kind: rules.advice for rules in TABLE}
