"""Pilot sample -> what the whole run will take: tokens, cost and time with 95 % intervals.

A regression estimator over the known length of every row (Cochran, "Sampling Techniques", 3rd ed. 1977,
chapter 7), because lengths and answers are heavy-tailed and a plain mean of a sample is not to be trusted.
Must not know how a sample is drawn, sent or shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cbrt, fsum, sqrt
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.95
# Below this a slope is mostly noise, and the mean alone is used.
_FEWEST_FOR_SLOPE = 10


class Lengths:
    """Lengths of all rows in bytes, streamed: their number, sum and sum of squares."""

    __slots__ = ("bytes", "rows", "squares")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.squares = 0

    def add(self, length_bytes: int) -> None:
        """Counts one row."""
        self.rows += 1
        self.bytes += length_bytes
        self.squares += length_bytes * length_bytes


class Sampled(NamedTuple):
    """One row of the pilot; tokens, cost and seconds (time in flight) over all of its attempts, None if unknown."""

    length_bytes: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None
    succeeded: bool


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


class Spread(NamedTuple):
    """Tokens a row: mean and standard deviation over all rows, as estimated."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the run will go: slots, and the limits of the endpoints together where they are known."""

    in_flight: int
    requests_per_min: float | None = None
    tokens_per_min: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a run will take.  None where the sample does not tell (tokens or price unknown, too few rows).

    `cost_usd` is for all rows, `rest_cost_usd` and `rest_seconds` for those that the pilot has not done.
    `unknown_costs` counts sampled rows whose cost is unknown; the others stand in for them.
    """

    rows: int
    sampled_rows: int
    input_tokens: Spread | None
    output_tokens: Spread | None
    total_input_tokens: Estimate | None
    total_output_tokens: Estimate | None
    cost_usd: Estimate | None
    rest_cost_usd: Estimate | None
    rest_seconds: Estimate | None
    success_rate: Estimate | None
    unknown_costs: int

    def object(self) -> dict[str, object]:
        """For --json: intervals as {value, low, high}, spreads as {mean, deviation}."""
        found: dict[str, object] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            found[name] = value._asdict() if isinstance(value, Estimate | Spread) else value
        return found


def quote(lengths: Lengths, sample: Sequence[Sampled], pace: Pace) -> Quote:
    """Estimates all rows from a uniform random sample of them.

    `lengths` covers the whole input, the sampled rows included.
    """
    taken = _known(sample, "input_tokens"), _known(sample, "output_tokens")
    (read, read_spread), (written, written_spread) = (_total(lengths, pairs) for pairs in taken)
    paid = _known(sample, "cost_usd")
    cost = _total(lengths, paid)[0]
    return Quote(
        rows=lengths.rows,
        sampled_rows=len(sample),
        input_tokens=read_spread,
        output_tokens=written_spread,
        total_input_tokens=read,
        total_output_tokens=written,
        cost_usd=cost,
        rest_cost_usd=_rest(cost, paid),
        rest_seconds=_rest_seconds(lengths, sample, pace, _rest(read, taken[0]), _rest(written, taken[1])),
        success_rate=_wilson(sum(row.succeeded for row in sample), len(sample)),
        unknown_costs=len(sample) - len(paid),
    )


def _known(sample: Sequence[Sampled], name: str) -> list[tuple[int, float]]:
    """(length, value) of the rows that tell."""
    pairs = ((row.length_bytes, getattr(row, name)) for row in sample)
    return [(length, value) for length, value in pairs if value is not None]


def _rest(total: Estimate | None, pairs: Sequence[tuple[int, float]]) -> Estimate | None:
    """What is left of a total once the sample's own part is done."""
    if total is None:
        return None
    done = fsum(value for _, value in pairs)
    return Estimate(*(max(0.0, bound - done) for bound in total))


def _rest_seconds(
    lengths: Lengths, sample: Sequence[Sampled], pace: Pace, read: Estimate | None, written: Estimate | None
) -> Estimate | None:
    """By Little's law, time in flight over slots; but never faster than the stated limits allow."""
    timed = _known(sample, "seconds")
    rest = _rest(_total(lengths, timed)[0], timed)
    rest_rows = lengths.rows - len(sample)
    if rest is None or rest_rows <= 0:
        return None if rest is None else Estimate(0.0, 0.0, 0.0)
    one_s = fsum(seconds for _, seconds in timed) / len(timed)
    floor_s = max(one_s, 60.0 * rest_rows / pace.requests_per_min if pace.requests_per_min else 0.0)
    tokens = [0.0, 0.0, 0.0]
    if pace.tokens_per_min and read is not None and written is not None:
        tokens = [60.0 * (a + b) / pace.tokens_per_min for a, b in zip(read, written, strict=True)]
    return Estimate(*(max(busy / pace.in_flight, floor_s, s) for busy, s in zip(rest, tokens, strict=True)))


# --- the estimator ----------------------------------------------------------------------------------------


def _total(lengths: Lengths, pairs: Sequence[tuple[int, float]]) -> tuple[Estimate, Spread] | tuple[None, None]:
    """The total over all rows, and the spread of one row, from (length, value) of a uniform sample."""
    count, rows = len(pairs), lengths.rows
    if count < 2 or rows < count:
        return None, None
    mean_x = fsum(x for x, _ in pairs) / count
    mean_y = fsum(y for _, y in pairs) / count
    all_x = lengths.bytes / rows
    squares_x = fsum((x - mean_x) ** 2 for x, _ in pairs)
    has_slope = count >= _FEWEST_FOR_SLOPE and squares_x > 0
    slope = fsum((x - mean_x) * (y - mean_y) for x, y in pairs) / squares_x if has_slope else 0.0
    # Residuals are weighted by how far the sample had to be corrected (Särndal, Swensson and Wretman 1989).
    tilt = count * (all_x - mean_x) / squares_x if has_slope else 0.0
    errors = [(y - mean_y - slope * (x - mean_x)) * (1.0 + tilt * (x - mean_x)) for x, y in pairs]
    free = count - 1 - has_slope
    variance = fsum(error * error for error in errors) / free
    value = rows * (mean_y + slope * (all_x - mean_x))
    error = rows * sqrt((1.0 - count / rows) * variance / count)
    spread_x = max(lengths.squares / rows - all_x * all_x, 0.0)
    estimate = _interval(value, error, _skew(errors), count, free)
    done = fsum(y for _, y in pairs)  # A total cannot be less than what the sample alone has taken.
    bounded = Estimate(*(max(bound, done) for bound in estimate))
    return bounded, Spread(bounded.value / rows, sqrt(slope * slope * spread_x + variance))


def _interval(value: float, error: float, skew: float, count: int, free: int) -> Estimate:
    """The wider of two intervals on either side: Student's, and Hall's transformation that removes skewness.

    Student's alone misses high totals of heavy-tailed rows (Hall, "On the Removal of Skewness by
    Transformation", J. R. Statist. Soc. B 54, 1992).
    """
    far = _student(free)
    low, high = value - far * error, value + far * error
    bend = skew / sqrt(count)
    if abs(bend) > 1e-9:
        low = min(low, value - _unbent(far, bend) * error)
        high = max(high, value - _unbent(-far, bend) * error)
    return Estimate(value, low, high)


def _unbent(quantile: float, bend: float) -> float:
    return 3.0 / bend * (cbrt(1.0 + bend * (quantile - bend / 6.0)) - 1.0)


def _skew(errors: Sequence[float]) -> float:
    mean = fsum(errors) / len(errors)
    second = fsum((error - mean) ** 2 for error in errors) / len(errors)
    third = fsum((error - mean) ** 3 for error in errors) / len(errors)
    return third / second**1.5 if second > 0 else 0.0


def _student(free: int) -> float:
    """Student's two-sided quantile (Abramowitz and Stegun 26.7.5; within 2 % from 3 degrees of freedom on)."""
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    if free < 3:
        return 12.706 if free == 1 else 4.303
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


def _wilson(successes: int, tries: int) -> Estimate | None:
    """The score interval for a share (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    if tries == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    share = successes / tries
    scale = 1 + z * z / tries
    middle = (share + z * z / (2 * tries)) / scale
    reach = z * sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries)) / scale
    return Estimate(share, max(0.0, middle - reach), min(1.0, middle + reach))
