"""What is measured of a session, and what is not."""

from __future__ import annotations

import pytest

from rowmill.records import Attempt, Outcome, Status
from rowmill.runner.commands.meter import Meter


class Kept:
    """A store that keeps what it is given."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.outcomes: list[Outcome] = []

    def save_attempt(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def save_outcome(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def full(self) -> bool:
        return False

    async def room(self) -> None:
        pass


class Bench:
    """A meter over a kept store, with a clock that the test moves."""

    def __init__(self, in_flight: int, rows_wanted: int) -> None:
        self.now = 100.0
        self.store = Kept()
        self.closings = 0
        self.meter = Meter(self.store, lambda: self.now, in_flight, rows_wanted, self._closed)

    def _closed(self) -> None:
        self.closings += 1

    def attempt(self, at_s: float, kind: str | None = None, latency_s: float = 1.0) -> None:
        self.now = 100.0 + at_s
        self.meter.save_attempt(Attempt(0, "m", 0.0, latency_s, kind, 200, None, None, None, 10, 5))

    def row(self, at_s: float, attempts: int = 1) -> None:
        self.attempt(at_s)
        self.meter.save_outcome(Outcome(0, Status.OK, b"{}", None, "m", "m", attempts, 1.0, 10, 5, None, None))


def test_time_runs_from_the_first_send_to_the_last_row_wanted() -> None:
    bench = Bench(in_flight=2, rows_wanted=4)
    for at_s in (1.0, 1.0, 2.0, 2.0):
        bench.row(at_s)
    measured = bench.meter.measured()
    assert measured.rows == 4
    assert measured.seconds == pytest.approx(2.0)
    assert measured.rows_per_s == pytest.approx(2.0)
    assert measured.tokens_per_s == pytest.approx(30.0)
    assert measured.p50_s == pytest.approx(1.0, rel=0.02)
    assert bench.closings == 1


def test_rows_that_end_while_the_session_drains_are_kept_but_not_measured() -> None:
    bench = Bench(in_flight=2, rows_wanted=2)
    for at_s in (1.0, 1.0, 9.0):
        bench.row(at_s)
    assert bench.meter.measured().seconds == pytest.approx(1.0)
    assert (bench.meter.measured().rows, bench.meter.rows_kept, len(bench.store.outcomes)) == (2, 3, 3)


def test_where_the_time_is_up_before_every_slot_has_answered_the_drain_counts() -> None:
    bench = Bench(in_flight=3, rows_wanted=9)
    bench.row(5.0, attempts=1)
    bench.meter.close()
    bench.row(6.0)
    measured = bench.meter.measured()
    assert (bench.closings, measured.rows) == (1, 2)
    assert measured.seconds == pytest.approx(2.0)


def test_throttles_and_failures_are_told_apart_from_answers() -> None:
    bench = Bench(in_flight=1, rows_wanted=9)
    for kind in ("throttled", "server", "timeout", "invalid", "truncated", None):
        bench.attempt(1.0, kind)
    measured = bench.meter.measured()
    assert (measured.requests, measured.throttles, measured.failures) == (6, 1, 2)


def test_rows_that_were_never_sent_are_not_measured() -> None:
    bench = Bench(in_flight=1, rows_wanted=2)
    bench.meter.save_outcome(Outcome(0, Status.SKIPPED, None, None, None, None, 0, None, None, None, None, None))
    assert (bench.meter.measured().rows, len(bench.store.outcomes)) == (0, 1)
