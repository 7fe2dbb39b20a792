"""What one lane is told of its endpoint; it must not know what the lane makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowmill.core.limits.concurrency import START
from rowmill.core.pricing.prices import Price
from rowmill.records import Request


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """What a lane is told; times are in seconds.

    `in_flight` is the concurrency limit (>= 1), None lets it adapt from `first_in_flight` up to `most_in_flight`;
    `price` is None when unknown, `price_of` stands in for it where requests name models of their own; `worst_usd` says
    what a request may cost at most, None when unknown.  `pin`: rows never leave the lane, whatever its trouble.
    """

    name: str
    model: str
    in_flight: int | None = None
    most_in_flight: int = 1024
    timeout_s: float = 120.0
    max_outage_s: float = 600.0
    price: Price | None = None
    worst_usd: Callable[[Request], float] | None = None
    pin: bool = False
    price_of: Callable[[Request], Price | None] | None = None
    first_in_flight: int = START
