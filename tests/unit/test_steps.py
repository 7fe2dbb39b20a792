"""What a row does next: retries, repairs and the fallback, walked by hand and by property."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.pricing.prices import PriceSpec, price_of
from rowmill.core.replies.answers import Fallback, compile_fallback, compile_schema
from rowmill.core.replies.steps import Done, Move, RetryRules, RowState, Wait, change_lane, next_step
from rowmill.errors import FailureKind
from rowmill.records import Answer, Failure, Row, Status, Usage

ANSWER = Answer({"a": "yes"})
INVALID = Failure(FailureKind.INVALID, "$.a: 'maybe' is not one of yes or no", excerpt='{"a": "maybe"}')
SERVER = Failure(FailureKind.SERVER, "HTTP 503")
FALLBACK = compile_fallback({"a": "no"}, compile_schema("a: yes|no"), ["invalid", "truncated"])


class Walk:
    """One row walked through what it sees, as a worker would; `sent` counts requests that used an attempt."""

    def __init__(self, rules: RetryRules) -> None:
        self.rules = rules
        self.state = RowState(Row(0, {}))
        self.sent = 0
        self.decision: Wait | Move | Done | None = None

    def sees(self, seen: Answer | Failure, *, uses_attempt: bool = True, busy_s: float = 0.0) -> Wait | Move | Done:
        self.state.busy_s += busy_s
        if uses_attempt:
            self.sent += 1
            self.state.attempts += isinstance(seen, Failure)
        decision = next_step(self.state, seen, self.rules, uses_attempt=uses_attempt, random=lambda: 0.5)
        if isinstance(decision, Wait):
            self.state.busy_s += decision.delay_s
            self.state.repairs += decision.repair
        self.decision = decision
        return decision

    def sees_all(self, seen: Sequence[Answer | Failure]) -> Done:
        for one in seen:
            if isinstance(self.decision, Done):
                break
            self.sees(one)
        assert isinstance(self.decision, Done)
        return self.decision


def test_an_invalid_answer_is_asked_for_again_at_once() -> None:
    assert Walk(RetryRules(repair=1)).sees(INVALID) == Wait(0.0, INVALID, repair=True)


def test_without_repair_an_invalid_answer_ends_the_row_after_one_request() -> None:
    walk = Walk(RetryRules())
    assert walk.sees(INVALID) == Done(Status.INVALID, None, INVALID.message)


def test_a_row_is_repaired_as_often_as_allowed_and_then_invalid() -> None:
    walk = Walk(RetryRules(repair=2))
    done = walk.sees_all([INVALID, INVALID, INVALID, ANSWER])
    assert (done.status, walk.sent) == (Status.INVALID, 3)
    assert done.error == f"{INVALID.message} (after 2 repairs)"


def test_three_invalid_replies_and_a_valid_one_are_ok_and_cost_all_four() -> None:
    price = price_of("any", None, PriceSpec(1.0, 1.0, unit="1K"), today=date(2026, 11, 1))
    assert price is not None
    walk = Walk(RetryRules(attempts=1, repair=3))
    cost = 0.0
    for seen in (INVALID, INVALID, INVALID, ANSWER):
        walk.sees(seen)
        cost += price.cost(Usage(100, 20)) or 0.0
    assert isinstance(walk.decision, Done)
    assert walk.decision.status is Status.OK
    assert cost == pytest.approx(4 * 0.12)


def test_repairs_use_up_no_attempts() -> None:
    walk = Walk(RetryRules(attempts=2, repair=2))
    assert walk.sees_all([INVALID, INVALID, SERVER, ANSWER]).status is Status.OK


def test_retries_use_up_no_repairs() -> None:
    walk = Walk(RetryRules(attempts=3, repair=1))
    assert walk.sees_all([SERVER, SERVER, INVALID, ANSWER]).status is Status.OK


def test_back_off_does_not_grow_by_repairs() -> None:
    walk = Walk(RetryRules(repair=2))
    walk.sees(INVALID)
    walk.sees(INVALID)
    assert walk.sees(SERVER) == Wait(0.5, SERVER)


def test_a_row_that_has_no_time_left_is_not_repaired() -> None:
    walk = Walk(RetryRules(repair=1, row_timeout_s=10.0))
    decision = walk.sees(INVALID, busy_s=10.0)
    assert isinstance(decision, Done)
    assert decision.status is Status.INVALID


def test_a_truncated_answer_is_never_repaired() -> None:
    cut = Failure(FailureKind.TRUNCATED, "cut", values={"answer": '{"a": "ye'})
    assert Walk(RetryRules(repair=3)).sees(cut) == Done(Status.TRUNCATED, cut.values, "cut")


def test_the_fallback_stands_in_once_repairs_are_used_up() -> None:
    walk = Walk(RetryRules(repair=1, fallback=FALLBACK))
    done = walk.sees_all([INVALID, INVALID])
    assert (done.status, done.answer) == (Status.FALLBACK, {"a": "no"})
    assert done.error == f"invalid: {INVALID.message} (after a repair)"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FailureKind.TRUNCATED, Status.FALLBACK),
        (FailureKind.REFUSED, Status.REFUSED),
        (FailureKind.FILTERED, Status.FILTERED),
        (FailureKind.BAD_REQUEST, Status.FAILED),
    ],
)
def test_the_fallback_stands_in_only_for_what_it_names(kind: FailureKind, status: Status) -> None:
    decision = Walk(RetryRules(fallback=FALLBACK)).sees(Failure(kind, "so it is"))
    assert isinstance(decision, Done)
    assert decision.status is status


def test_a_failed_row_never_gets_the_fallback() -> None:
    every = Fallback({"a": "no"}, frozenset({Status.INVALID, Status.REFUSED, Status.TRUNCATED, Status.FILTERED}))
    assert Walk(RetryRules(attempts=1, fallback=every)).sees_all([SERVER]).status is Status.FAILED


kinds = st.sampled_from([FailureKind.SERVER, FailureKind.TIMEOUT, FailureKind.INVALID, FailureKind.THROTTLED])
failures = st.builds(
    Failure,
    st.one_of(kinds, st.sampled_from(FailureKind)),
    st.just("fault"),
    retry_after_s=st.one_of(st.none(), st.floats(0, 2000)),
    retry=st.sampled_from([None, None, None, True, False]),
)
all_rules = st.builds(
    RetryRules,
    attempts=st.integers(1, 6),
    backoff_s=st.floats(0, 5),
    repair=st.integers(0, 4),
    fallback=st.sampled_from([None, FALLBACK]),
)


@given(all_rules, st.lists(failures, min_size=10, max_size=10))
def test_a_row_always_ends_within_its_attempts_and_repairs(rules: RetryRules, seen: Sequence[Failure]) -> None:
    walk = Walk(rules)
    walk.sees_all(seen)
    assert walk.sent <= rules.attempts + rules.repair
    assert walk.state.repairs <= rules.repair
    assert walk.state.busy_s <= rules.row_timeout_s


@given(all_rules, st.lists(st.tuples(failures, st.booleans()), max_size=30))
def test_what_is_the_lanes_fault_neither_ends_a_row_nor_uses_anything_up(
    rules: RetryRules, seen: Sequence[tuple[Failure, bool]]
) -> None:
    walk = Walk(rules)
    for failure, uses_attempt in seen:
        used = walk.state.attempts, walk.state.repairs
        decision = walk.sees(failure, uses_attempt=uses_attempt)
        if isinstance(decision, Done):
            assert uses_attempt
            break
        assert isinstance(decision, Wait)  # the rules know no cascade
        if not uses_attempt:
            assert (walk.state.attempts, walk.state.repairs) == used
            assert not decision.repair


@given(all_rules, st.lists(failures, max_size=10))
def test_a_valid_answer_ends_a_row_that_is_still_under_way(rules: RetryRules, seen: Sequence[Failure]) -> None:
    walk = Walk(rules)
    for failure in seen:
        if isinstance(walk.sees(failure), Done):
            return
    assert walk.sees(ANSWER) == Done(Status.OK, ANSWER.values)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("invalid", FailureKind.INVALID),
        ("refused", FailureKind.REFUSED),
        ("truncated", FailureKind.TRUNCATED),
        ("filtered", FailureKind.FILTERED),
        ("failed", FailureKind.BAD_REQUEST),
    ],
)
def test_a_row_that_would_end_with_a_status_of_the_cascade_goes_on(status: str, kind: FailureKind) -> None:
    failure = Failure(kind, "no good")
    rules = RetryRules(cascade=frozenset({Status(status)}))
    assert Walk(rules).sees(failure) == Move(failure)
    assert isinstance(Walk(RetryRules()).sees(failure), Done)


def test_repairs_come_before_the_cascade_and_the_cascade_before_the_fallback() -> None:
    walk = Walk(RetryRules(repair=1, fallback=FALLBACK, cascade=frozenset({Status.INVALID})))
    assert walk.sees(INVALID) == Wait(0.0, INVALID, repair=True)
    assert walk.sees(INVALID) == Move(INVALID)


def test_attempts_are_counted_at_each_endpoint_and_remembered_there() -> None:
    state = RowState(Row(0, {}))
    state.attempts = 3
    change_lane(state, 0, 1)
    assert state.attempts == 0
    state.attempts = 2
    change_lane(state, 1, 0)
    assert state.attempts == 3
