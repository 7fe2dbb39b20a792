"""Percentiles of latencies in constant memory: counts in buckets 2 % wide.

The scheme is that of DDSketch (Masson, Rim and Lee, VLDB 2019) with a relative error of 1 %; it must not know
where the numbers come from.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

_GAMMA = 1.02
_SCALE = 1.0 / math.log(_GAMMA)


class Histogram:
    """Counts positive numbers; `percentile(0.95)` is within 1 % of the true one."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: Mapping[int, int] | None = None) -> None:
        self._buckets = defaultdict(int, buckets or {})

    def add(self, value: float) -> None:
        self._buckets[math.ceil(math.log(value if value > 1e-6 else 1e-6) * _SCALE)] += 1

    def percentile(self, share: float) -> float | None:
        """The value below which `share` (0 to 1) of the numbers lie; None before the first."""
        count = sum(self._buckets.values())
        if not count:
            return None
        rank = share * (count - 1)
        below = 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if below > rank:
                return float(2.0 * _GAMMA**bucket / (_GAMMA + 1.0))
        return None

    def buckets(self) -> dict[int, int]:
        """The counts, to be stored and given to a new Histogram."""
        return dict(self._buckets)

    def merge(self, other: Histogram) -> None:
        """Adds the counts of another."""
        for bucket, count in other.buckets().items():
            self._buckets[bucket] += count
