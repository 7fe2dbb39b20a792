"""The rate of a server that announces none, learned from what it accepts and when it refuses.

Arithmetic only; it must not know of pauses, headers or lanes.

The first refusals tell what was accepted, not in which time it is allowed again: a full minute's worth may have
gone out in a second.  So a refusal after a short history is measured up to the first acceptance after it: that
is right for a window of any length and, from the second refusal on, for a bucket that fills steadily.

A server that refused everything for a while looks the same from here as one whose minute was used up.  So the
first rate learned is put to the test once, a quarter of a window later: the limit is lifted, and either it is
refused again, which costs a few requests and no throughput, or there was none.
"""

from __future__ import annotations

import math

KEEPS = 0.93  # of the measured rate
FIRST_STEP, ROUGH_STEP, LARGEST_STEP = 0.05, 0.2, 0.5
LONGEST_HOLD = 8
USED_SHARE = 0.8
TEST_AFTER = 0.25  # of a window
FORGETS_AFTER = 2.0  # windows without a refusal


class LearnedRate:
    """One quantity's learned rate a second, `math.inf` before the first refusal; O(1) but at refusals."""

    def __init__(self, window_s: float) -> None:
        self.rate = math.inf
        self._window_s = window_s
        self._closed = False
        self._cut_s = 0.0
        self._resumed_s = -1.0
        self._start_s = 0.0
        self._accepted = 0
        self._is_short = False
        self._is_rough = False
        self._changed_s = 0.0
        self._interval_s = window_s
        self._step = FIRST_STEP
        self._hold = 1
        self._ceiling = 0.0
        self._test_s = math.inf
        self._is_tested = False
        self._tested_rate = 0.0

    @property
    def measured_from_s(self) -> tuple[float, float]:
        """From when on the next measurement counts: with a short history, and with a long one."""
        return self._cut_s, self._resumed_s

    def on_throttle(self, sent_s: float, amount: int, now: float) -> bool:
        """A refusal.  True when it begins an episode: then call `measure`."""
        if self._closed or sent_s <= self._resumed_s:
            if self._start_s <= sent_s <= self._cut_s:
                self._accepted = max(0, self._accepted - amount)
            return False
        return True

    def measure(self, accepted: int, start_s: float, now: float) -> None:
        """Begins an episode: `accepted` since `start_s`."""
        self._closed = True
        self._cut_s = now
        self._start_s = start_s
        self._accepted = accepted
        self._is_short = now - start_s < self._window_s / 2

    def on_success(self, sent_s: float, used: int, now: float) -> bool:
        """An acceptance; `used` is the last window's amount.  True when the rate has changed."""
        if self._closed:
            if sent_s <= self._cut_s:
                return False
            self._closed = False
            self._resumed_s = now
            return self._adopt(sent_s, now)
        if now >= self._test_s:
            self._test_s = math.inf
            self._is_tested = True
            self._changed_s = now
            self._tested_rate, self.rate = self.rate, math.inf
            return True
        if self.rate == math.inf:
            if self._is_tested and now - self._changed_s > FORGETS_AFTER * self._window_s:
                self._is_tested, self._tested_rate = False, 0.0
            return False
        if now - self._changed_s < self._interval_s * self._hold:
            return False
        return self._grow(used, now)

    def _adopt(self, sent_s: float, now: float) -> bool:
        end_s = sent_s if self._is_short else self._cut_s
        span_s = max(end_s - self._start_s, self._window_s / 120)
        if not self._accepted:
            return False
        if self._tested_rate:
            self.rate, self._tested_rate = self._tested_rate, 0.0
            self._changed_s = now
            return True
        measured = self._accepted / span_s
        self._test_s = now + TEST_AFTER * self._window_s if self.rate == math.inf and not self._is_tested else math.inf
        if self._is_short:
            self._interval_s = min(max(2.0 * span_s, self._window_s / 30), self._window_s)
            self.rate = KEEPS * measured
        else:
            self._interval_s = self._window_s
            self.rate = KEEPS * min(max(measured, 0.75 * self.rate), self.rate)
        self._hold = min(2 * self._hold, LONGEST_HOLD) if measured < 1.2 * self._ceiling else 1
        self._ceiling = measured
        self._is_rough = span_s < self._window_s / 2
        self._step = ROUGH_STEP if self._is_rough else FIRST_STEP
        self._changed_s = now
        return True

    def _grow(self, used: int, now: float) -> bool:
        self._changed_s = now
        if used < USED_SHARE * self.rate * min(self._interval_s, self._window_s):
            return False
        self.rate *= 1.0 + self._step
        if self._is_rough or self.rate > 1.2 * self._ceiling:
            self._hold = 1
            self._step = min(2.0 * self._step, LARGEST_STEP)
        return True
