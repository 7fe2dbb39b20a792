"""The plain records that flow through the engine.

What is made once a row or more is a `Record`, which takes a quarter of the time of a NamedTuple to make, or less; that
counts inside the 75 µs that a row may cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec
import msgspec.structs

from rowmill.errors import FailureKind, StopReason


class Record(msgspec.Struct, frozen=True, gc=False):
    """What is made once a row: made, read and compared in C, and left alone by the collector, being in no cycle."""

    def replaced(self, **changes: Any) -> Self:
        """A copy with other values in these fields."""
        return msgspec.structs.replace(self, **changes)


class Status(StrEnum):
    """How a row ended; a row without an outcome is pending."""

    OK = "ok"
    FALLBACK = "fallback"
    INVALID = "invalid"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    REFUSED = "refused"
    FAILED = "failed"
    SKIPPED = "skipped"


GOOD = frozenset({Status.OK, Status.FALLBACK, Status.SKIPPED})
# For what runs once a row: a name by itself is found fifteen times faster than a member.
STATUS_OK, STATUS_FAILED = Status.OK, Status.FAILED


class Fault(NamedTuple):
    """Why an input line is not a row.

    `line` is 1-based, 0 where the fault is none of a line's; `raw` is an excerpt of the line.
    """

    line: int
    reason: str
    raw: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class Spent(Record, frozen=True):
    """What earlier sessions sent for a row: requests that counted, tokens (None: unknown), USD (None: unknown)."""

    requests: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class Row(Record, frozen=True):
    """One row of input on its way to a worker.

    `index` is its 0-based index in the input, `values` holds the columns that the job needs (templates,
    routing), `fault` is set when the input line could not be read, `unread` is a raw reply that an earlier
    session stored but did not read (`unread_from` names the endpoint it came from), `lane_failures` counts its
    throttled, reset and 403 attempts of earlier sessions, `spent` sums up all its attempts there, None where there
    were none.  `reread`: it has ended before, and its stored reply is only to be read anew.
    """

    index: int
    values: Mapping[str, object]
    fault: Fault | None = None
    unread: RawReply | None = None
    lane_failures: int = 0
    spent: Spent | None = None
    reread: bool = False
    unread_from: str | None = None


class Message(Record, frozen=True):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


class Body(Record, frozen=True):
    """A request's body as somebody else wrote it, JSON, for `path` below the endpoint's URL.

    `model` is the one it names, None where the endpoint's is to be put in.  `max_tokens` is the most that it lets
    all its answers have together, None where nothing limits them.  `surplus_tokens` is how many tokens it may count at
    most beyond one a byte (below 0: so many fewer).
    """

    path: str
    content: bytes
    model: str | None
    max_tokens: int | None
    surplus_tokens: int = 0


class Item(Record, frozen=True):
    """What a function is called with for one row, and that row's index."""

    index: int
    value: Any


class Request(Record, frozen=True):
    """What is asked, in no provider's dialect.

    `params` are sent as they are.  `model` is None for the endpoint's own.  Where there is a `body`, it is sent, and
    messages and parameters are not.  `item` is for a function, which takes neither.
    """

    messages: Sequence[Message]
    params: Mapping[str, object]
    body: Body | None = None
    model: str | None = None
    item: Item | None = None


class RawReply(Record, frozen=True):
    """A reply as it came: HTTP status, lower-case header names, body, seconds from send to last byte."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_s: float


class Usage(Record, frozen=True):
    """Tokens that a reply reports; None where it does not say.

    `input_tokens` includes the cached ones, `output_tokens` the reasoning ones, `cache_write_tokens` those that are
    kept for an hour.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None


NO_USAGE = Usage()


class Reply(Record, frozen=True):
    """A provider's reply in no provider's dialect.  `text` is None where the content was null."""

    text: str | None
    finish_reason: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    usage: Usage = NO_USAGE
    model: str | None = None
    request_id: str | None = None


class Answer(Record, frozen=True):
    """A valid answer: its columns, in the schema's order (one column `answer` for plain text)."""

    values: Mapping[str, object]
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one attempt, or with the row.

    `message` is for the user and free of secrets.  `retry_after_s` is what the server asked for, None where it
    did not.  `retry` overrides the kind's habit where the server said `x-should-retry`.  `values` holds what of
    an answer there is (a truncated text).
    """

    kind: FailureKind
    message: str
    status_code: int | None = None
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    retry: bool | None = None
    excerpt: str = ""
    values: Mapping[str, object] | None = None
    reasoning: str | None = None
    latency_s: float | None = None


class Attempt(Record, frozen=True):
    """One request as the run file logs it; append only.  `sent_at` is Unix time.

    `body` is the raw reply (of an error an excerpt), None where there was none; the store takes secrets out of it.
    `cost_usd` is None where it is unknown, 0 where nothing was billed.  `is_first`: as far as is known nothing was sent
    for the row before.
    """

    index: int
    endpoint: str
    sent_at: float
    latency_s: float | None
    kind: str | None
    status_code: int | None
    body: bytes | None
    error: str | None
    request_id: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None = None
    is_first: bool = False


class LastAttempt(Record, frozen=True):
    """The attempt that a row ended with, as the run file keeps it; `body` as in `Attempt`."""

    kind: str | None
    status_code: int | None
    request_id: str | None
    body: bytes | None


class Outcome(Record, frozen=True):
    """How a row ended: what the output's columns are made of.

    `attempts` counts requests sent, throttled ones not; tokens are over all attempts, None where unknown;
    `latency_s` is the winning attempt's.  `answer` is JSON (an object of answer columns), None where there is none.
    """

    index: int
    status: Status
    answer: bytes | None
    error: str | None
    endpoint: str | None
    model: str | None
    attempts: int
    latency_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    reasoning: str | None
    duplicate_of: int | None = None


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """One lane as it stands now.

    `adapts`: the limit is found by the lane itself.  `waiting` counts rows that wait for a retry; `why` says what
    the lane waits for.  Rates and `success_rate` (requests that brought an answer, of those that ended) are over a
    sliding window of some seconds while the run lasts, over the session once it has ended.
    """

    name: str
    in_flight: int
    limit: int
    adapts: bool
    waiting: int
    why: str | None
    requests: int
    failures: int
    rows_per_s: float
    requests_per_s: float
    success_rate: float | None
    input_tokens_per_s: float
    output_tokens_per_s: float
    retries: Mapping[str, int]
    throttles: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """A run as it stands now: totals over all rows, rates of this session.

    `total` and `pending` are None while the input's length is unknown; `cost_usd` is what all attempts of all
    sessions have cost, None when that of one is unknown; `known_usd` is the known part of it.  `latency_s` has p50,
    p95 and p99 of winning attempts in seconds, None before the first.
    """

    total: int | None
    counts: Mapping[str, int]
    session_rows: int
    elapsed_s: float
    rows_per_s: float
    eta_s: float | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    latency_s: Mapping[str, float | None]
    retries: Mapping[str, int]
    throttles: Mapping[str, int]
    lanes: Sequence[LaneFigures]
    known_usd: float = 0.0

    @property
    def done(self) -> int:
        """Rows that have an outcome."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    `message` says what stopped it and what to do, empty when it finished.  `accuracy` is None where not asked
    for; `accuracy_lines` says it for a reader.
    `nothing_to_do` is true when every row had been finished before.  `errors`: the most frequent ones of rows that
    ended badly, with their counts.
    """

    reason: StopReason
    exit_code: int
    message: str
    figures: Figures
    output: str | None
    failures: str | None
    run_file: str
    nothing_to_do: bool = False
    accuracy: Mapping[str, object] | None = None
    accuracy_lines: Sequence[str] = ()
    errors: Sequence[tuple[str, int]] = ()
