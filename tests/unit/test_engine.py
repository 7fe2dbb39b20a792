"""The engine in virtual time: rows from a list, a provider from a function, a store that keeps everything."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from tests.trial import Trial, failure
from tests.virtual import FakeProvider, ok

from rowmill.engine.circuit_breaker import KEY_TRIES
from rowmill.errors import FailureKind, StopReason
from rowmill.events import LaneDisabled, LanePaused
from rowmill.records import Failure, Fault, RawReply, Request, Row, Status


def test_every_row_gets_its_own_answer_and_the_cap_is_held() -> None:
    trial = Trial(500, lambda index, number, at: ok(f"answer {index}"))
    assert trial.reason is StopReason.FINISHED
    assert {i: o.answer for i, o in trial.store.outcomes.items()} == {
        i: f'{{"answer":"answer {i}"}}'.encode() for i in range(500)
    }
    assert trial.provider.peak_in_flight == 20


def test_slots_never_wait_for_each_other() -> None:
    """500 rows of 0.1 s in 20 slots take 25 rounds."""
    trial = Trial(500, lambda index, number, at: ok())
    assert trial.seconds == pytest.approx(2.5, abs=0.11)


def test_one_row_that_is_always_503_is_sent_exactly_attempts_times() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.SERVER) if i == 7 else ok())
    assert trial.provider.requests[7] == 4
    assert trial.statuses == {"ok": 99, "failed": 1}
    assert [a.kind for a in trial.store.attempts if a.index == 7] == ["server"] * 4


def test_a_waiting_row_holds_no_slot() -> None:
    order: list[int] = []

    def answer(index: int, number: int, at: float) -> RawReply | Failure:
        order.append(index)
        return failure(FailureKind.SERVER) if index == 0 and number < 3 else ok()

    trial = Trial(2, answer, in_flight=1)
    assert trial.statuses == {"ok": 2}
    assert order[:2] == [0, 1]


@pytest.mark.parametrize("in_flight", [1, 3, 20])
def test_an_outage_of_40_s_uses_up_no_row(in_flight: int) -> None:
    trial = Trial(60, lambda i, n, at: failure(FailureKind.SERVER) if at < 1040 else ok(), in_flight=in_flight)
    assert trial.statuses == {"ok": 60}


@pytest.mark.parametrize("in_flight", [1, 20])
def test_a_storm_of_429_for_60_s_fails_no_row_and_sends_few_requests(in_flight: int) -> None:
    trial = Trial(
        100, lambda i, n, at: failure(FailureKind.THROTTLED) if at < 1060 else ok(), in_flight=in_flight, attempts=3
    )
    assert trial.statuses == {"ok": 100}
    during = sum(1 for at, _ in trial.provider.sent if at < 1060)
    pauses = sum(isinstance(event, LanePaused) for event in trial.events)
    assert during <= in_flight + pauses


def test_nothing_is_sent_before_retry_after_has_passed() -> None:
    trial = Trial(
        50,
        lambda i, n, at: failure(FailureKind.THROTTLED, retry_after_s=7.0) if i == 3 and n == 0 else ok(),
        in_flight=2,
    )
    assert trial.statuses == {"ok": 50}
    times = [at for at, _ in trial.provider.sent]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) >= 6.9


@pytest.mark.parametrize("in_flight", [1, 2, 20])
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FailureKind.THROTTLED, "failed"),
        (FailureKind.RESET, "failed"),
        (FailureKind.FORBIDDEN, "filtered"),
    ],
)
def test_a_row_that_is_the_trouble_itself_ends_alone(kind: FailureKind, status: str, in_flight: int) -> None:
    trial = Trial(1000, lambda i, n, at: failure(kind) if i == 500 else ok(), in_flight=in_flight)
    assert trial.reason is StopReason.FINISHED
    assert trial.statuses == {"ok": 999, status: 1}


@pytest.mark.parametrize("in_flight", [1, 20])
def test_a_server_that_is_gone_for_60_s_costs_no_attempt(in_flight: int) -> None:
    trial = Trial(
        200,
        lambda i, n, at: failure(FailureKind.UNREACHABLE) if 1000.5 < at < 1060.5 else ok(),
        in_flight=in_flight,
    )
    assert trial.statuses == {"ok": 200}
    assert all(outcome.attempts == 1 for outcome in trial.store.outcomes.values())
    first_back = min(at for at, _ in trial.provider.sent if at >= 1060.5)
    assert first_back < 1065.5


def test_a_server_that_resets_everything_for_a_while_fails_no_row() -> None:
    trial = Trial(200, lambda i, n, at: failure(FailureKind.RESET) if 1000.5 < at < 1030 else ok())
    assert trial.statuses == {"ok": 200}


def test_a_server_that_never_comes_back_stops_the_run_resumable() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.UNREACHABLE), max_outage_s=60.0)
    assert trial.reason is StopReason.OUTAGE
    assert not trial.store.outcomes


def test_a_wait_longer_than_max_outage_disables_the_lane_and_says_so() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.THROTTLED, retry_after_s=86_400.0))
    assert trial.reason is StopReason.OUTAGE
    assert "86400" in trial.message
    assert trial.seconds < 10


def test_a_wait_longer_than_max_outage_disables_the_lane_also_amid_another_wait() -> None:
    waits = {0: 1.0, 1: 3600.0}

    def refused(index: int, number: int, at: float) -> Failure:
        return failure(FailureKind.THROTTLED, retry_after_s=waits.get(index, 1.0))

    trial = Trial(2, refused, in_flight=2)
    assert trial.reason is StopReason.OUTAGE
    assert "3600" in trial.message
    assert trial.seconds < 60


def test_a_row_whose_time_is_over_ends_instead_of_being_sent_again() -> None:
    timeouts: list[float] = []

    class Slow(FakeProvider):
        async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
            timeouts.append(timeout_s)
            return await super().send(request, timeout_s)

    trial = Trial(3, Slow(lambda i, n, at: failure(FailureKind.TIMEOUT), 1.0), attempts=1, row_timeout_s=2.5)
    assert min(timeouts) > 0.1
    assert all(outcome.status is Status.FAILED for outcome in trial.store.outcomes.values())


def test_quota_stops_at_once_and_leaves_the_rows_pending() -> None:
    trial = Trial(10_000, lambda i, n, at: failure(FailureKind.QUOTA))
    assert trial.reason is StopReason.QUOTA
    assert len(trial.provider.sent) == 20
    assert not trial.store.outcomes


def test_a_model_that_is_missing_stops_at_once() -> None:
    trial = Trial(10_000, lambda i, n, at: failure(FailureKind.MODEL_MISSING))
    assert trial.reason is StopReason.MODEL_MISSING
    assert len(trial.provider.sent) <= 20


def test_a_lane_that_is_out_is_told_of_once_whatever_was_in_flight() -> None:
    trial = Trial(10_000, lambda i, n, at: failure(FailureKind.MODEL_MISSING), in_flight=20)
    assert sum(isinstance(event, LaneDisabled) for event in trial.events) == 1


@pytest.mark.parametrize("in_flight", [1, 20, 50])
def test_rows_refused_alike_from_the_start_fail_the_first_rows_check(in_flight: int) -> None:
    refused = failure(FailureKind.BAD_REQUEST, status_code=400, code="unsupported_parameter")
    trial = Trial(10_000, lambda i, n, at: refused, in_flight=in_flight)
    assert trial.reason is StopReason.HOPELESS
    assert len(trial.provider.sent) <= max(20, in_flight)
    assert not trial.store.outcomes


def test_refused_rows_after_a_success_are_only_those_rows() -> None:
    refused = failure(FailureKind.BAD_REQUEST, status_code=400)
    trial = Trial(100, lambda i, n, at: ok() if i == 0 else refused, in_flight=1)
    assert trial.statuses == {"ok": 1, "failed": 99}


def test_rows_too_long_for_the_context_pass_the_first_rows_check() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.CONTEXT_LENGTH, status_code=400))
    assert trial.statuses == {"failed": 100}
    assert len(trial.provider.sent) == 100


def test_a_bad_line_fails_without_being_sent() -> None:
    rows = [Row(0, {"text": "0"}), Row(1, {}, Fault(7, "not JSON", "[1,")), Row(2, {"text": "2"})]
    trial = Trial(rows, lambda i, n, at: ok())
    assert trial.store.outcomes[1].status is Status.FAILED
    assert trial.store.outcomes[1].error == "line 7: not JSON"
    assert sorted(trial.provider.requests) == [0, 2]


def test_a_reply_of_an_earlier_session_is_read_and_not_bought_again() -> None:
    rows = [Row(0, {"text": "0"}, unread=RawReply(200, {}, b"bought", 0.4))]
    trial = Trial(rows, lambda i, n, at: ok())
    assert trial.store.outcomes[0].answer == b'{"answer":"bought"}'
    assert not trial.provider.sent


@pytest.mark.parametrize(("empty", "status"), [("skip", "skipped"), ("fail", "failed"), ("send", "ok")])
def test_empty_rows_go_by_the_rule(empty: str, status: str) -> None:
    rows = [Row(0, {"text": "0"})]
    trial = Trial([*rows, Row(1, {"text": " "})] if empty != "send" else rows, lambda i, n, at: ok(), empty=empty)
    last = trial.store.outcomes[max(trial.store.outcomes)]
    assert last.status == status


def test_the_job_deadline_lets_what_is_in_flight_end() -> None:
    trial = Trial(10_000, lambda i, n, at: ok(), max_duration_s=1.05)
    assert trial.reason is StopReason.MAX_DURATION
    assert len(trial.store.outcomes) == len(trial.provider.sent)


class Interrupted(Trial):
    """Replies take a minute, and signals come after so many seconds."""

    def __init__(self, *signals_s: float) -> None:
        self._signals_s = signals_s
        super().__init__(40, lambda i, n, at: ok(), latency_s=60.0)

    async def _go(self, rows: Sequence[Row]) -> tuple[StopReason, str]:
        for after_s in self._signals_s:
            asyncio.get_running_loop().call_later(after_s, lambda: self.run.stop(StopReason.INTERRUPTED))
        return await super()._go(rows)


@pytest.mark.parametrize(("signals_s", "ended_s"), [([1.0], 11.0), ([1.0, 2.0], 2.0), ([55.0], 60.0)])
def test_a_signal_gives_what_is_in_flight_10_s_and_a_second_one_drops_it(
    signals_s: list[float], ended_s: float
) -> None:
    trial = Interrupted(*signals_s)
    assert trial.reason is StopReason.INTERRUPTED
    assert trial.seconds == pytest.approx(ended_s)
    assert len(trial.store.outcomes) == (20 if ended_s == 60.0 else 0)
    assert len(trial.provider.sent) == 20


def test_too_many_failures_stop_the_run() -> None:
    trial = Trial(
        10_000,
        lambda i, n, at: failure(FailureKind.CONTEXT_LENGTH) if i % 2 else ok(),
        max_failure_rate=0.2,
    )
    assert trial.reason is StopReason.FAILURE_RATE
    assert 50 <= len(trial.store.outcomes) <= 90


def test_everything_forbidden_is_a_matter_of_credentials() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.FORBIDDEN, status_code=403))
    assert trial.reason is StopReason.CREDENTIALS
    assert not trial.store.outcomes


def test_a_key_that_is_refused_for_good_is_tried_a_few_times_over_some_seconds_and_stops_the_run() -> None:
    trial = Trial(100, lambda i, n, at: failure(FailureKind.CREDENTIALS, status_code=401), in_flight=5)
    assert trial.reason is StopReason.CREDENTIALS
    assert not trial.store.outcomes
    assert 2.0 < trial.seconds < 10.0
    assert len(trial.provider.sent) == 5 + KEY_TRIES - 1


@pytest.mark.parametrize("kind", [FailureKind.CREDENTIALS, FailureKind.FORBIDDEN])
@pytest.mark.parametrize("in_flight", [1, 20])
def test_keys_that_are_refused_for_a_moment_cost_no_row_and_no_attempt(kind: FailureKind, in_flight: int) -> None:
    trial = Trial(
        300, lambda i, n, at: failure(kind, status_code=401) if 1001.0 < at < 1002.0 else ok(), in_flight=in_flight
    )
    assert trial.reason is StopReason.FINISHED
    assert trial.statuses == {"ok": 300}


@pytest.mark.parametrize("kind", [FailureKind.CREDENTIALS, FailureKind.FORBIDDEN])
def test_a_key_that_one_request_in_twenty_refuses_stops_nothing(kind: FailureKind) -> None:
    trial = Trial(400, lambda i, n, at: failure(kind) if n == 0 and i % 20 == 7 else ok(), in_flight=8)
    assert trial.reason is StopReason.FINISHED
    assert trial.statuses == {"ok": 400}


@pytest.mark.parametrize(("kind", "status"), [(FailureKind.CREDENTIALS, "failed"), (FailureKind.FORBIDDEN, "filtered")])
@pytest.mark.parametrize("in_flight", [1, 3, 20])
def test_rows_that_are_refused_as_if_for_the_key_while_others_succeed_are_only_those_rows(
    kind: FailureKind, status: str, in_flight: int
) -> None:
    trial = Trial(200, lambda i, n, at: failure(kind) if i % 20 == 3 else ok(), in_flight=in_flight)
    assert trial.reason is StopReason.FINISHED
    assert trial.statuses == {"ok": 190, status: 10}


def test_throttled_requests_are_not_counted_as_attempts_of_the_row() -> None:
    trial = Trial(1, lambda i, n, at: failure(FailureKind.THROTTLED) if n == 0 else ok())
    assert trial.store.outcomes[0].attempts == 1
    assert [attempt.kind for attempt in trial.store.attempts] == ["throttled", None]


def test_the_last_row_waits_out_a_throttled_lane() -> None:
    trial = Trial(1, lambda i, n, at: failure(FailureKind.THROTTLED) if at < 1090 else ok())
    assert trial.statuses == {"ok": 1}


def test_a_lone_row_that_was_throttled_in_an_earlier_session_does_not_block_the_resume() -> None:
    rows = [Row(5, {"text": "5"}, lane_failures=3)]
    trial = Trial(rows, lambda i, n, at: failure(FailureKind.THROTTLED))
    assert trial.statuses == {"failed": 1}
