"""How many requests in flight to try next, when to stop, and what to recommend; from measurements alone.

It must not know how anything is measured, written or shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from math import ceil, log, sqrt
from typing import NamedTuple

GAIN = 0.05  # more throughput by less than this is nothing
FLAT_STEPS = 2
ENOUGH = 0.95  # of the best throughput
REFINEMENTS = 2
FEWEST_ROWS = 30
ROUNDS = 3  # rows a slot at each step
THROTTLED = "throttled"
THROTTLED_SHARE = 0.01
MORE_FAILURES = 0.05
TIMEOUT_LATENCIES, SHORTEST_TIMEOUT_S = 3.0, 10
LOST_ROWS = 1e-4
FEWEST_ATTEMPTS, MOST_ATTEMPTS = 3, 10


class Measured(NamedTuple):
    """One step: `rows` ended within `seconds` while that many requests were kept in flight.

    Latencies are of requests that were answered, in seconds, None where none was.  `requests` counts all that
    ended, `throttles` and `failures` those of them that brought no answer.
    """

    in_flight: int
    rows: int
    seconds: float
    requests: int
    throttles: int
    failures: int
    input_tokens: int
    output_tokens: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Input and output."""
        return (self.input_tokens + self.output_tokens) / self.seconds if self.seconds > 0 else 0.0

    @property
    def throttled_share(self) -> float:
        return self.throttles / self.requests if self.requests else 0.0

    @property
    def failed_share(self) -> float:
        return self.failures / self.requests if self.requests else 0.0


class Advice(NamedTuple):
    """What to write into the job: the fewest in flight that reach about the best throughput, and how patiently."""

    in_flight: int
    timeout_s: int
    attempts: int


def ladder(most: int) -> Iterator[int]:
    """1, 5, 10, 20, 50, 100, 200, 500, ... up to `most`, which is the last one."""
    rungs = (digit * 10**power for power in count() for digit in (1, 2, 5))
    yield from takewhile(lambda rung: rung < most, (rung for rung in rungs if rung != 2))
    yield most


def rows_of(in_flight: int, step_rows: int | None) -> int:
    """Rows that a step is measured over; the same number again as are in flight keeps the slots full meanwhile."""
    return step_rows or max(ROUNDS * in_flight, FEWEST_ROWS)


def next_in_flight(measured: Sequence[Measured], most: int) -> int | None:
    """What to try next, given the steps in the order they were made; None when more brings nothing.

    After the first step that brought nothing the knee is looked for below it: that costs fewer rows than the next
    rung, and where it shows the same throughput once more, nothing is left to be had above.
    """
    tried = {step.in_flight for step in measured}
    between = _knee_by_extrapolation(measured)
    may_refine = between is not None and between not in tried and _refinements(measured) < REFINEMENTS
    flat, is_over = _flat_steps(measured)
    is_over = is_over or flat >= FLAT_STEPS or max(tried, default=0) >= most
    if may_refine and (flat or is_over):
        return between
    return None if is_over else next(rung for rung in ladder(most) if rung > max(tried, default=0))


def why_ended(measured: Sequence[Measured], most: int) -> str:
    """Why there is no next step, in words."""
    for step in sorted(measured):
        found = trouble(measured, step)
        if found:
            hint = " (a limit a minute is stated with --rpm or --tpm)" if found == THROTTLED else ""
            return f"{found} at {step.in_flight} in flight{hint}"
    if _flat_steps(measured)[0] < FLAT_STEPS:
        return f"{most} in flight were tried, the most allowed (--most)"
    return "more in flight brings nothing"


def advise(measured: Sequence[Measured]) -> Advice | None:
    """The recommendation; None where no step went well enough to recommend anything."""
    clean = _clean(measured)
    knee = _knee(clean)
    if knee is None or knee.p99_s is None:
        return None
    # The slowest step counts: a request given up is paid for, one waited for a little longer costs nothing.
    slowest_s = max(step.p99_s or 0.0 for step in measured)
    timeout_s = max(SHORTEST_TIMEOUT_S, ceil(TIMEOUT_LATENCIES * slowest_s))
    return Advice(knee.in_flight, timeout_s, attempts_for(clean))


def attempts_for(measured: Sequence[Measured]) -> int:
    """Attempts after which a row has failed with a probability below 1e-4, were failures independent.

    They come in bunches, and a sample without any proves little: one more than was seen is counted, and three
    attempts are the least.
    """
    requests = sum(step.requests - step.throttles for step in measured)
    share = (sum(step.failures for step in measured) + 1) / (requests + 2)
    return min(max(ceil(log(LOST_ROWS) / log(share)), FEWEST_ATTEMPTS), MOST_ATTEMPTS)


def trouble(measured: Sequence[Measured], step: Measured) -> str | None:
    """What speaks against a step, in words: throttling, or more failures than chance explains."""
    if not step.rows:
        return "nothing was answered"
    if step.throttled_share >= THROTTLED_SHARE:
        return THROTTLED
    fewer = [other for other in measured if other.in_flight < step.in_flight]
    usual = (sum(other.failures for other in fewer) + 1) / (sum(other.requests for other in fewer) + 2)
    expected = usual * step.requests
    is_more = step.failures > expected + 3 * sqrt(expected) and step.failed_share > usual + MORE_FAILURES
    return "more failures" if fewer and is_more else None


def _clean(measured: Sequence[Measured]) -> list[Measured]:
    """The steps below the first trouble, by rising in-flight."""
    clean = []
    for step in sorted(measured):
        if trouble(measured, step):
            break
        clean.append(step)
    return clean


def _flat_steps(measured: Sequence[Measured]) -> tuple[int, bool]:
    """How many of the highest steps brought nothing, and whether one of all brought trouble."""
    steps = sorted(measured)
    flat = 0
    for index in range(1, len(steps)):
        best = max(step.rows_per_s for step in steps[:index])
        flat = flat + 1 if steps[index].rows_per_s < best * (1 + GAIN) else 0
    return flat, len(_clean(steps)) < len(steps)


def _refinements(measured: Sequence[Measured]) -> int:
    """Steps that were made below one made before."""
    return sum(step.in_flight < max(measured[: index + 1]).in_flight for index, step in enumerate(measured))


def _knee(clean: Sequence[Measured]) -> Measured | None:
    best = max((step.rows_per_s for step in clean), default=0.0)
    return next((step for step in clean if step.rows_per_s >= ENOUGH * best), None)


def _knee_by_extrapolation(measured: Sequence[Measured]) -> int | None:
    """Where the step below the knee would reach the best throughput if it went on in proportion (Little's law)."""
    clean = _clean(measured)
    knee = _knee(clean)
    below = [step for step in clean if knee is not None and step.in_flight < knee.in_flight]
    if knee is None or not below or not below[-1].rows_per_s:
        return None
    best = max(step.rows_per_s for step in clean)
    wanted = ceil(below[-1].in_flight * best / below[-1].rows_per_s)
    return wanted if below[-1].in_flight * 1.05 < wanted < knee.in_flight * 0.95 else None
