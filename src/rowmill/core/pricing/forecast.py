"""What a run may cost, reckoned from the sizes of some requests before any of them is sent.

A pilot measures; this only bounds: a range that is sure to be wide, and a guess inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from rowmill.core.pricing.prices import Price
from rowmill.records import Usage

# Tokens a byte of a body: English prose with its JSON takes 0.2 to 0.25, runs of blanks and long words less.
LIKELY_INPUT, LEAST_INPUT = 0.25, 0.12
# An answer where nothing else is known: a paragraph, or half of what it may have.
LIKELY_OUTPUT = 256


class Costs(NamedTuple):
    """USD of one request, or of all; `most` is None where nothing limits the answer."""

    least: float
    likely: float
    most: float | None


class Forecast(NamedTuple):
    """What a row costs, on average, with one request a row; `rows` is None where their number is not known.

    `is_counted`: the number of rows is known, and not reckoned from the size of the input.
    """

    row: Costs
    rows: int | None
    is_counted: bool

    @property
    def total(self) -> Costs | None:
        """What all rows cost; None where their number is not known."""
        return None if self.rows is None else times(self.row, self.rows)


def request_costs(price: Price, body_bytes: int, max_tokens: int | None, most_usd: float | None) -> Costs:
    """What one request may cost; `most_usd` is its worst case."""
    output = LIKELY_OUTPUT if max_tokens is None else min(LIKELY_OUTPUT, (max_tokens + 1) // 2)
    read = int(body_bytes * LEAST_INPUT)
    likely = price.cost(Usage(int(body_bytes * LIKELY_INPUT), output)) or 0.0
    least = price.cost(Usage(read, min(1, output), cached_input_tokens=read)) or 0.0
    return Costs(least, likely, None if most_usd is None else max(most_usd, likely))


def between(costs: Sequence[Costs]) -> Costs:
    """Where one of several endpoints is asked, the first of them by choice."""
    most = [one.most for one in costs]
    known = [one for one in most if one is not None]
    return Costs(min(one.least for one in costs), costs[0].likely, max(known) if len(known) == len(most) else None)


def mean(costs: Sequence[Costs]) -> Costs:
    """What one of these costs on average."""
    most = [one.most for one in costs if one.most is not None]
    return Costs(
        fsum(one.least for one in costs) / len(costs),
        fsum(one.likely for one in costs) / len(costs),
        fsum(most) / len(costs) if len(most) == len(costs) else None,
    )


def times(costs: Costs, number: int) -> Costs:
    """What so many cost."""
    return Costs(costs.least * number, costs.likely * number, None if costs.most is None else costs.most * number)
