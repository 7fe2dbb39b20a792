"""What was reserved in the last window, by quantity, in sixty buckets; time is passed in."""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = 60
KEPT = BUCKETS + 2  # one for the bucket under way, one because requests do not arrive as evenly as they leave


class Window:
    """Sums of several quantities over a sliding window, O(1) amortised.

    Invariant: an amount counts for at least `window_s` and a sixtieth after it was added, and for at most two
    sixtieths more.
    """

    __slots__ = ("_buckets", "_current", "_newest", "_next_s", "bucket_s", "used")

    def __init__(self, quantities: int, window_s: float) -> None:
        self.bucket_s = window_s / BUCKETS
        self.used = [0] * quantities
        self._buckets = [[0] * quantities for _ in range(KEPT)]
        self._newest = 0
        self._current = self._buckets[0]
        self._next_s = self.bucket_s

    def advance(self, now: float) -> None:
        """Forgets what is too old; call before `used` is read."""
        if now < self._next_s:
            return
        bucket = int(now / self.bucket_s)
        used = self.used
        for passed in range(max(self._newest, bucket - KEPT) + 1, bucket + 1):
            old = self._buckets[passed % KEPT]
            for index, amount in enumerate(old):
                if amount:
                    used[index] -= amount
                    old[index] = 0
        self._newest = bucket
        self._current = self._buckets[bucket % KEPT]
        self._next_s = (bucket + 1) * self.bucket_s

    def add(self, amounts: Sequence[int]) -> int:
        """Counts amounts at the moment of the last `advance`; returns the bucket for `replace`."""
        sums, used = self._current, self.used
        for index, amount in enumerate(amounts):
            if amount:
                sums[index] += amount
                used[index] += amount
        return self._newest

    def count(self, now: float) -> int:
        """Adds 1 of the first quantity and nothing of the others; returns the bucket for `replace`."""
        if now >= self._next_s:
            self.advance(now)
        self._current[0] += 1
        self.used[0] += 1
        return self._newest

    def weigh(self, amounts: Sequence[int]) -> None:
        """Adds amounts of all but the first quantity for each 1 of that."""
        for sums in (*self._buckets, self.used):
            for index in range(1, len(sums)):
                sums[index] += sums[0] * amounts[index]

    def replace(self, bucket: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Changes amounts that were added to a bucket; without effect once that is forgotten."""
        if bucket > self._newest - KEPT:
            sums, used = self._buckets[bucket % KEPT], self.used
            for index, amount in enumerate(after):
                if amount != before[index]:
                    change = amount - before[index]
                    sums[index] += change
                    used[index] += change

    def falls_to_s(self, index: int, amount: float, now: float) -> float:
        """Seconds until `used` is at most `amount` if nothing is added."""
        left = self.used[index]
        for bucket in range(self._newest - KEPT + 1, self._newest + 1):
            if left <= amount:
                break
            left -= self._buckets[bucket % KEPT][index]
            leaves_s = (bucket + KEPT) * self.bucket_s
        else:
            return leaves_s - now
        return leaves_s - now if left < self.used[index] else 0.0

    def since(self, index: int, at_s: float) -> tuple[int, float]:
        """What was added at `at_s` or later, and the first moment of it (the present bucket's where nothing was)."""
        total, first = 0, self._newest
        for bucket in range(self._newest, max(self._newest - KEPT, int(max(at_s, 0.0) / self.bucket_s) - 1, -1), -1):
            amount = self._buckets[bucket % KEPT][index]
            if amount:
                total += amount
                first = bucket
        return total, max(first * self.bucket_s, at_s)
