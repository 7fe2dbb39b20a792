"""Several lanes in one run, in virtual time: who answers which row, and who takes over in trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.trial import failure
from tests.virtual import Answering, FakeClock, FakeFeed, FakeProvider, FakeStore, ok, run_virtual

from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.replies.schemas import compile_schema
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.prompts import compile_prompt
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import FailureKind, StopReason
from rowmill.events import Event, LaneDisabled
from rowmill.records import Failure, Message, RawReply, Row, Status

DOWN = failure(FailureKind.UNREACHABLE)
GOOD = ok('{"label": "yes"}')
BAD = ok('{"label": 7}')


class LaneSetup:
    """One lane of a run: how its server answers, and the rows meant for it (None: it shares the others' feed)."""

    def __init__(self, answer: Answering, rows: Sequence[int] | None = None, **settings: Any) -> None:
        self.provider = FakeProvider(answer, settings.pop("latency_s", 0.1))
        self.rows = rows
        self.in_flight = settings.pop("in_flight", 10)
        self.pin = settings.pop("pin", False)
        self.rpm = settings.pop("rpm", None)
        self.cascade = frozenset(Status(name) for name in settings.pop("cascade", ()))
        assert not settings


class Lanes:
    """A run over several lanes; `shared` rows are for whoever is free of those without rows of their own."""

    def __init__(self, *setups: LaneSetup, shared: int = 0, max_outage_s: float = 600.0) -> None:
        self.setups = setups
        self.store = FakeStore()
        self.events: list[Event] = []
        self.reason, self.message = run_virtual(lambda: self._go(shared, max_outage_s))

    async def _go(self, shared: int, max_outage_s: float) -> tuple[StopReason, str]:
        clock = FakeClock()
        common = FakeFeed([Row(index, {"text": str(index)}) for index in range(shared)])
        own = [FakeFeed([Row(n, {"text": str(n)}) for n in setup.rows or ()]) for setup in self.setups]
        feeds = [common if setup.rows is None else feed for setup, feed in zip(self.setups, own, strict=True)]
        total = shared + sum(len(setup.rows or ()) for setup in self.setups)
        run = Run(
            list(dict.fromkeys(feeds)),
            self.store,
            clock,
            RunStats(Before(), clock.now, lambda: total),
            [self],
        )
        schema = compile_schema({"label": "string"})
        started = clock.now()
        for number, (setup, feed) in enumerate(zip(self.setups, feeds, strict=True)):
            config = LaneConfig("abc"[number], "model", setup.in_flight, max_outage_s=max_outage_s, pin=setup.pin)
            limits = Limits(setup.rpm)
            lane = Lane(
                config,
                setup.provider,
                clock,
                run.notify,
                RateGate(RateLimiter(limits), clock, stated=limits),
                run.failover.join(feed, has_partition=setup.rows is not None),
            )
            prompt = compile_prompt([Message("user", "{{ text }}")])
            run.add(lane, RowRules(prompt, {}, schema, RetryRules(cascade=setup.cascade)))
        ending = await run.execute(RunLimits())
        self.seconds = clock.now() - started
        return ending

    def notify(self, event: Event) -> None:
        self.events.append(event)

    @property
    def by(self) -> Counter[str | None]:
        """How many rows each lane has answered."""
        return Counter(outcome.endpoint for outcome in self.store.outcomes.values())

    @property
    def statuses(self) -> Counter[str]:
        return Counter(outcome.status.value for outcome in self.store.outcomes.values())

    @property
    def disabled(self) -> list[str]:
        return [event.lane for event in self.events if isinstance(event, LaneDisabled)]


def fine(index: int, number: int, now: float) -> RawReply | Failure:
    return GOOD


def down(index: int, number: int, now: float) -> RawReply | Failure:
    return DOWN


def until(seconds: float, before: Failure) -> Answering:
    return lambda index, number, now: before if now < 1000.0 + seconds else GOOD


def test_a_fast_and_a_slow_lane_together_do_what_both_do_alone() -> None:
    lanes = Lanes(LaneSetup(fine, latency_s=0.1), LaneSetup(fine, latency_s=0.4), shared=5000)
    assert lanes.statuses == {"ok": 5000}
    assert 5000 / lanes.seconds >= 0.95 * (10 / 0.1 + 10 / 0.4)


def test_rows_go_to_the_lane_that_they_are_meant_for() -> None:
    lanes = Lanes(LaneSetup(fine, range(20), latency_s=5.0), LaneSetup(fine, range(20, 30)))
    assert lanes.by == {"a": 20, "b": 10}
    assert {lanes.store.outcomes[index].endpoint for index in range(20)} == {"a"}


def test_rows_of_a_lane_whose_server_is_gone_go_to_the_other() -> None:
    lanes = Lanes(LaneSetup(down, range(200)), LaneSetup(fine, range(200, 210)))
    assert lanes.statuses == {"ok": 210}
    assert lanes.by == {"b": 210}
    assert lanes.reason is StopReason.FINISHED


def test_a_lane_that_always_fails_is_probed_while_the_other_does_its_rows() -> None:
    broken = LaneSetup(lambda index, number, now: failure(FailureKind.SERVER))
    lanes = Lanes(broken, LaneSetup(fine, in_flight=2), shared=2000)
    assert lanes.statuses == {"ok": 2000}
    assert lanes.by == {"b": 2000}
    assert 20 <= len(broken.provider.sent) <= 80


def test_a_lane_that_is_well_again_takes_its_own_rows() -> None:
    lanes = Lanes(LaneSetup(until(5.0, DOWN), range(1000)), LaneSetup(fine, range(1000, 1001), in_flight=1))
    assert lanes.statuses == {"ok": 1001}
    assert lanes.by["a"] > 900


def test_rows_of_a_pinned_lane_wait_for_it() -> None:
    lanes = Lanes(LaneSetup(until(30.0, DOWN), range(20), pin=True), LaneSetup(fine, range(20, 30)))
    assert lanes.by == {"a": 20, "b": 10}


def test_rows_of_a_pinned_lane_that_is_out_stay_pending_and_the_others_are_done() -> None:
    quota = failure(FailureKind.QUOTA)
    lanes = Lanes(LaneSetup(lambda *_: quota, range(100), pin=True), LaneSetup(fine, range(100, 150)))
    assert lanes.by == {"b": 50}
    assert lanes.reason is StopReason.QUOTA


def test_with_no_lane_left_the_run_stops_and_the_rows_stay_pending() -> None:
    quota = failure(FailureKind.QUOTA)
    lanes = Lanes(LaneSetup(lambda *_: quota), LaneSetup(lambda *_: quota), shared=100)
    assert not lanes.store.outcomes
    assert lanes.reason is StopReason.QUOTA
    assert sorted(lanes.disabled) == ["a", "b"]


def test_rows_of_a_disabled_lane_go_to_the_first_of_the_others() -> None:
    quota = failure(FailureKind.QUOTA)
    lanes = Lanes(
        LaneSetup(fine, range(5), in_flight=2),
        LaneSetup(lambda *_: quota, range(5, 105)),
        LaneSetup(fine, range(105, 110)),
    )
    assert lanes.by == {"a": 105, "c": 5}


def test_a_row_that_is_for_all_prefers_those_it_is_for() -> None:
    lanes = Lanes(
        LaneSetup(fine, range(500, 505)), LaneSetup(until(300.0, DOWN)), LaneSetup(fine, in_flight=3), shared=300
    )
    assert lanes.by == {"a": 5, "c": 300}


def test_while_both_lanes_are_throttled_the_rows_wait_for_the_earlier() -> None:
    slow = failure(FailureKind.THROTTLED, retry_after_s=120.0)
    quick = failure(FailureKind.THROTTLED, retry_after_s=5.0)
    lanes = Lanes(LaneSetup(until(100.0, slow)), LaneSetup(until(4.0, quick)), shared=10)
    assert lanes.statuses == {"ok": 10}
    assert lanes.by == {"b": 10}
    assert lanes.seconds < 8.0


def test_a_row_meant_for_a_throttled_lane_waits_for_it() -> None:
    slow = failure(FailureKind.THROTTLED, retry_after_s=20.0)
    lanes = Lanes(LaneSetup(until(10.0, slow), range(5)), LaneSetup(fine, range(5, 10)))
    assert lanes.by == {"a": 5, "b": 5}


def test_attempts_are_counted_at_each_lane_apart() -> None:
    faults = {0: 3}

    def first(index: int, number: int, now: float) -> RawReply | Failure:
        if index < 30 and now < 1000.0 + 60.0:
            return failure(FailureKind.SERVER)
        return GOOD

    def second(index: int, number: int, now: float) -> RawReply | Failure:
        return failure(FailureKind.SERVER) if index in faults and number < faults[index] else GOOD

    lanes = Lanes(LaneSetup(first, range(30)), LaneSetup(second, range(30, 31)))
    assert lanes.statuses == {"ok": 31}
    assert lanes.store.outcomes[0].endpoint == "b"


def test_invalid_rows_go_down_the_cascade() -> None:
    first = LaneSetup(lambda index, number, now: BAD if index % 10 == 0 else GOOD, cascade=["invalid"])
    lanes = Lanes(first, LaneSetup(fine, rows=()), shared=100)
    assert lanes.statuses == {"ok": 100}
    assert lanes.by == {"a": 90, "b": 10}
    assert lanes.store.outcomes[0].attempts == 2


def test_the_last_of_a_cascade_has_the_last_word() -> None:
    always = LaneSetup(lambda *_: BAD, cascade=["invalid"])
    lanes = Lanes(always, LaneSetup(lambda *_: BAD, rows=()), shared=10)
    assert lanes.statuses == {"invalid": 10}
    assert lanes.by == {"b": 10}


def test_a_cascade_whose_next_lane_is_out_ends_where_it_is() -> None:
    quota = failure(FailureKind.QUOTA)
    first = LaneSetup(lambda *_: BAD, cascade=["invalid"], latency_s=1.0, in_flight=2)
    lanes = Lanes(first, LaneSetup(lambda *_: quota, rows=[100], in_flight=1), shared=10)
    assert lanes.statuses == {"invalid": 11}
    assert lanes.by == {"a": 11}


def test_a_row_that_has_gone_down_the_cascade_does_not_come_back() -> None:
    first = LaneSetup(lambda *_: BAD, cascade=["invalid"])
    second = LaneSetup(until(20.0, DOWN), rows=())
    lanes = Lanes(first, second, shared=5)
    assert lanes.by == {"b": 5}
    assert len(first.provider.sent) == 5


def test_a_lane_that_fails_its_first_rows_check_is_disabled_and_its_held_rows_are_answered_elsewhere() -> None:
    refused = failure(FailureKind.BAD_REQUEST, status_code=400, code="unsupported_parameter", param="max_tokens")
    lanes = Lanes(LaneSetup(lambda *_: refused, range(100)), LaneSetup(fine, range(100, 110)))
    assert lanes.statuses == {"ok": 110}
    assert lanes.disabled == ["a"]


def test_what_waits_for_a_rate_does_not_keep_rows_from_a_free_lane() -> None:
    lanes = Lanes(LaneSetup(fine, rpm=6.0, in_flight=50), LaneSetup(fine, in_flight=10), shared=1000)
    assert lanes.statuses == {"ok": 1000}
    assert lanes.seconds < 1000 / 100 + 15


@pytest.mark.parametrize("lane_count", [2, 3])
def test_many_lanes_in_changing_trouble_lose_no_row_and_answer_none_twice(lane_count: int) -> None:
    kinds = [FailureKind.THROTTLED, FailureKind.UNREACHABLE, FailureKind.SERVER, FailureKind.RESET]

    def moody(lane: int) -> Answering:
        def answer(index: int, number: int, now: float) -> RawReply | Failure:
            phase = int(now / 7) * 31 + lane * 17
            return failure(kinds[phase % 4]) if phase % 3 == 0 else GOOD

        return answer

    lanes = Lanes(*(LaneSetup(moody(lane)) for lane in range(lane_count)), shared=3000)
    assert lanes.reason is StopReason.FINISHED
    assert len(lanes.store.outcomes) == 3000
    assert lanes.statuses["ok"] >= 2990
