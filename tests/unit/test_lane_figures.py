"""What the figures of a lane say: rates over a window, and what it waits for."""

from __future__ import annotations

from tests.figures import lane

from rowmill.cli.status import status_lines
from rowmill.core.measures.lane_object import lane_object
from rowmill.core.replies.steps import RowState
from rowmill.engine.circuit_breaker import CircuitBreaker
from rowmill.engine.stats import LaneStats
from rowmill.errors import FailureKind
from rowmill.records import Failure, Row, Usage


def refused(breaker: CircuitBreaker, failure: Failure, now: float) -> None:
    state = RowState(Row(0, {}))
    breaker.sent(state)
    breaker.failed(state, failure, now, alone=False)


def test_rates_are_over_the_last_ten_seconds() -> None:
    stats = LaneStats()
    for second in range(21):
        stats.tick(float(second))
        stats.requests += 4 if second < 10 else 20
        stats.succeeded += 2 if second < 10 else 19
        stats.failures += 2 if second < 10 else 1
        stats.used(Usage(30, 10))
    rates = stats.rates(None)
    assert (rates.requests, rates.succeeded, rates.failures) == (20.0, 19.0, 1.0)
    assert (rates.input_tokens, rates.output_tokens) == (30.0, 10.0)


def test_rates_of_a_session_that_has_ended_are_over_all_of_it() -> None:
    stats = LaneStats()
    stats.requests, stats.succeeded = 10, 8
    assert stats.rates(4.0)[:2] == (2.5, 2.0)


def test_a_throttled_lane_says_how_long_and_why() -> None:
    breaker = CircuitBreaker(600.0, lambda: 0.0)
    assert breaker.words(0.0) is None
    refused(breaker, Failure(FailureKind.THROTTLED, "HTTP 429: slow down", retry_after_s=5.0), 10.0)
    assert breaker.words(11.8) == "throttled, 3.2 s left: HTTP 429: slow down"
    assert breaker.words(15.5) == "throttled, probing: HTTP 429: slow down"


def test_a_lane_whose_server_is_gone_says_so() -> None:
    breaker = CircuitBreaker(600.0, lambda: 0.0)
    refused(breaker, Failure(FailureKind.UNREACHABLE, "connection refused"), 10.0)
    assert breaker.words(60.0) == "outage, probing: connection refused"


def test_status_shows_the_lanes_as_the_block_does() -> None:
    shown = lane_object(lane(adapts=True, why="rate limit (600 requests a minute)"))
    lines = status_lines({"output": "o", "state": "running", "lanes": [shown]})
    assert (
        "endpoint   vllm/m: in flight 7 of 20, auto · 46.0 requests/s · 99.0 % ok · tokens/s 900 in, 90.0 out" in lines
    )
    assert "           rate limit (600 requests a minute)" in lines


def test_status_passes_over_lanes_that_another_version_wrote() -> None:
    assert not [line for line in status_lines({"lanes": [{"name": "old"}]}) if line.startswith("endpoint")]
