"""Watches what a session saves and measures it, while its slots are kept full; passes everything on."""

from __future__ import annotations

from collections.abc import Callable

from rowmill.core.measures.histogram import Histogram
from rowmill.core.measures.tuning import Measured
from rowmill.errors import FailureKind
from rowmill.failure_kinds import FAILS_MEASUREMENT
from rowmill.ports import Store
from rowmill.records import Attempt, Outcome


class Meter:
    """Implements `ports.Store` over another one.

    Measures from the first request until `rows_wanted` rows have ended or `close` is called, then calls `closed`,
    which must stop the session: rows that end while it drains are not measured, since its slots empty.  Only where
    fewer rows have ended than were in flight they count as well.
    """

    def __init__(
        self, store: Store, now: Callable[[], float], in_flight: int, rows_wanted: int, closed: Callable[[], None]
    ) -> None:
        self._store = store
        self._now = now
        self._in_flight = in_flight
        self._rows_wanted = rows_wanted
        self._closed = closed
        self._latencies = Histogram()
        self._started_s: float | None = None
        self._ended_s = 0.0
        self._requests = self._throttles = self._failures = 0
        self._input_tokens = self._output_tokens = 0
        self._rows = 0
        self._measuring = True
        self.rows_kept = 0
        self.is_full = False

    def save_attempt(self, attempt: Attempt) -> None:
        self._store.save_attempt(attempt)
        if self._measuring:
            self._count(attempt)

    def save_outcome(self, outcome: Outcome) -> None:
        self._store.save_outcome(outcome)
        if not outcome.attempts:
            return
        self.rows_kept += 1
        if self._measuring:
            self._rows += 1
            self._ended_s = self._now()
            if self._rows >= self._rows_wanted:
                self.close()

    def full(self) -> bool:
        return self._store.full()

    async def room(self) -> None:
        await self._store.room()

    def close(self) -> None:
        """The time is up, or all is measured."""
        if self._rows >= min(self._in_flight, self._rows_wanted):
            self._measuring = False
        self.is_full = True
        self._closed()

    def measured(self) -> Measured:
        """What was measured."""
        started_s = self._ended_s if self._started_s is None else self._started_s
        return Measured(
            self._in_flight,
            self._rows,
            max(self._ended_s - started_s, 0.0),
            self._requests,
            self._throttles,
            self._failures,
            self._input_tokens,
            self._output_tokens,
            *(self._latencies.percentile(share) for share in (0.5, 0.95, 0.99)),
        )

    def _count(self, attempt: Attempt) -> None:
        now = self._now()
        if self._started_s is None:
            self._started_s = now - (attempt.latency_s or 0.0)
        self._ended_s = max(self._ended_s, now)
        self._requests += 1
        self._input_tokens += attempt.input_tokens or 0
        self._output_tokens += attempt.output_tokens or 0
        if attempt.kind == FailureKind.THROTTLED:
            self._throttles += 1
        elif attempt.kind in FAILS_MEASUREMENT:
            self._failures += 1
        elif attempt.latency_s is not None:
            self._latencies.add(attempt.latency_s)
