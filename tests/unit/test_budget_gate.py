"""The budget at work in the engine: never more spent than allowed, and as much of it used as can be."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest
from tests.virtual import FakeClock, FakeFeed, FakeProvider, FakeStore, ok, run_virtual

from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.pricing.budget import Budget
from rowmill.core.pricing.prices import Price, PriceSpec, Rates
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.prompts import compile_prompt
from rowmill.engine.budget_gate import BudgetGate
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import FailureKind, StopReason
from rowmill.records import Failure, Message, RawReply, Reply, Request, Row, Usage

PRICE = Price(((0, Rates(0.0, 0.0, 0.0, 0.01, 0.01)),), "of the test")  # a cent for a token of output
WORST_TOKENS = 10


class Billing(FakeProvider):
    """Bills each request by a number of output tokens, also where it answers late or not at all."""

    def __init__(self, seed: int, *, always_worst: bool) -> None:
        super().__init__(lambda index, number, at: ok())
        self._chance = random.Random(seed)
        self._always_worst = always_worst
        self.billed_usd = 0.0

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        tokens = WORST_TOKENS if self._always_worst else self._chance.randint(1, WORST_TOKENS)
        fate = self._chance.random()
        self._latency_s = self._chance.expovariate(5.0)
        await super().send(request, timeout_s)
        if fate < 0.05 and not self._always_worst:
            return Failure(FailureKind.SERVER, "HTTP 500")
        self.billed_usd += tokens * 0.01
        if fate < 0.15 and not self._always_worst:
            return Failure(FailureKind.TIMEOUT, "too late")
        return RawReply(200, {}, str(tokens).encode(), 0.1)

    def read(self, raw: RawReply) -> Reply:
        return Reply("yes", "stop", usage=Usage(1, int(raw.body)))


class Spending:
    """A run of 200 rows, 64 in flight, against a budget."""

    def __init__(self, limit_usd: float, seed: int = 1, *, always_worst: bool = True, spent_usd: float = 0.0) -> None:
        self.provider = Billing(seed, always_worst=always_worst)
        self.store = FakeStore()
        self.budget = Budget(limit_usd, spent_usd)
        self.reason, self.message = run_virtual(lambda: self._go(seed))

    async def _go(self, seed: int) -> tuple[StopReason, str]:
        clock = FakeClock(seed)
        rows = [Row(index, {"text": str(index)}) for index in range(200)]
        feed = FakeFeed(rows)
        rules = RowRules(compile_prompt([Message("user", "{{ text }}")]), {}, None, RetryRules())
        stats = RunStats(Before(), clock.now, lambda: len(rows))
        run = Run([feed], self.store, clock, stats)
        config = LaneConfig("lane", "model", 64, price=PRICE, worst_usd=lambda request: WORST_TOKENS * 0.01)
        gate = RateGate(RateLimiter(), clock)
        lane = Lane(config, self.provider, clock, run.notify, gate, run.failover.join(feed))
        run.add(lane, rules)
        return await run.execute(RunLimits(budget=self.budget))


def test_never_more_is_spent_than_allowed_in_200_trials() -> None:
    for seed in range(200):
        trial = Spending(1.0, seed, always_worst=False)
        assert trial.reason is StopReason.BUDGET
        assert trial.provider.billed_usd <= 1.0 + 1e-9, seed
        assert trial.budget.spent_usd >= trial.provider.billed_usd - 1e-9, seed


def test_a_dollar_buys_ten_requests_of_ten_cents_with_64_in_flight() -> None:
    trial = Spending(1.0)
    assert len(trial.provider.sent) == 10
    assert trial.reason is StopReason.BUDGET
    assert len(trial.store.outcomes) == 10
    assert trial.message.startswith("budget_usd of 1 USD: 1 USD are spent")


def test_what_does_not_fit_waits_while_something_is_in_flight() -> None:
    trial = Spending(1.0, always_worst=False)
    assert len(trial.provider.sent) > 10
    assert trial.budget.spent_usd > 0.9


def test_what_earlier_sessions_spent_counts() -> None:
    assert len(Spending(1.0, spent_usd=0.75).provider.sent) == 2


def test_with_enough_money_the_run_finishes() -> None:
    trial = Spending(20.0)
    assert trial.reason is StopReason.FINISHED
    assert trial.budget.spent_usd == pytest.approx(20.0)


def test_a_budget_that_buys_nothing_sends_nothing() -> None:
    trial = Spending(0.09)
    assert trial.provider.sent == []
    assert trial.reason is StopReason.BUDGET


def test_the_price_of_the_test_is_what_a_job_would_state() -> None:
    stated = PriceSpec(0.0, 0.01, unit="token")
    assert PRICE.cost(Usage(1, 7)) == pytest.approx(7 * stated.output)


class Waiting:
    """A run of 200 rows, 64 in flight, of which a quota lets one a second go; what its record says as time passes."""

    def __init__(self, until_s: float, stop: Callable[[Run], None] | None = None) -> None:
        self.provider = FakeProvider(lambda index, number, at: ok("yes"), latency_s=0.1)
        self.budget = Budget(1.0)
        self.recorded: list[tuple[int, int, int]] = []
        self.budget.record = lambda *figures: self.recorded.append(figures)
        self._stop = stop
        run_virtual(lambda: self._go(until_s))

    async def _go(self, until_s: float) -> None:
        clock = FakeClock()
        feed = FakeFeed([Row(index, {"text": str(index)}) for index in range(200)])
        run = Run([feed], FakeStore(), clock, RunStats(Before(), clock.now, lambda: 200))
        config = LaneConfig("lane", "model", 64, price=PRICE, worst_usd=lambda request: 0.01)
        gate = RateGate(RateLimiter(Limits(requests_per_min=60)), clock)
        rules = RowRules(compile_prompt([Message("user", "{{ text }}")]), {}, None, RetryRules())
        run.add(Lane(config, self.provider, clock, run.notify, gate, run.failover.join(feed)), rules)
        running = asyncio.ensure_future(run.execute(RunLimits(budget=self.budget)))
        is_time = asyncio.Event()
        asyncio.get_running_loop().call_later(until_s, is_time.set)
        await is_time.wait()
        if self._stop is None:
            running.cancel()
        else:
            self._stop(run)
        with contextlib.suppress(asyncio.CancelledError):
            await running


def stop_twice(run: Run) -> None:
    run.stop(StopReason.INTERRUPTED)
    run.stop(StopReason.INTERRUPTED)


def test_what_waits_for_its_rate_is_not_recorded_as_spent() -> None:
    trial = Waiting(5.05, stop_twice)
    sent = len(trial.provider.sent)
    assert sent < 10
    assert max(maybe for _, maybe, _ in trial.recorded) <= sent * 10**10
    assert len(trial.recorded) <= 2 * sent


def test_waiters_that_are_dropped_give_their_money_back() -> None:
    trial = Waiting(5.05, stop_twice)
    assert trial.budget.reserved_usd == 0.0
    assert trial.budget.sending_usd == 0.0
    assert trial.budget.spent_usd <= len(trial.provider.sent) * 0.01 + 1e-12


def test_a_send_that_was_admitted_and_dropped_in_one_turn_gives_its_money_back() -> None:
    async def go() -> float:
        gate = BudgetGate(lambda: None)
        gate.budget = Budget(1.0)
        assert await gate.admit(0.8)
        gate.sends(0.8)
        waiting = asyncio.ensure_future(gate.admit(0.5))
        await asyncio.sleep(0)
        gate.settle(0.8, 0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
        return gate.budget.reserved_usd

    assert run_virtual(go) == 0.0
