"""Random budgets with kills, images, missing and absurd usage: never overshot, never more charged than was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest
from tests.billing import Price, bill, body, without_bound
from tests.virtual import FakeClock, FakeFeed, FakeStore, run_virtual

from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.pricing.budget import Budget
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.batch_lines import BatchBodies
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import FailureKind, StopReason
from rowmill.job import Job
from rowmill.providers.openai_bodies import BatchProvider
from rowmill.records import Failure, RawReply, Row
from rowmill.runner.setup.body_prices import BodyPrices
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.pricing import priced

pytestmark = pytest.mark.slow

SEEDS = range(10)
BUDGETS = 45
USD = 1e12


class Server:
    """A transport that bills as requests come; after a kill nobody hears it any more."""

    def __init__(self, price: Price, chance: random.Random) -> None:
        self.price, self.chance = price, chance
        self.billed_usd = self.most_usd = 0.0
        self.is_gone = False

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        assert not self.is_gone
        billed = bill(self.price, body, self.chance)
        self.billed_usd += billed.usd
        self.most_usd += billed.most_usd
        latency_s = self.chance.expovariate(2.0)
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(latency_s, hear, heard)
        await heard
        if billed.reply is None:
            return Failure(
                self.chance.choice([FailureKind.TIMEOUT, FailureKind.RESET]), "broken off", latency_s=latency_s
            )
        return RawReply(billed.status, {}, billed.reply, latency_s)

    async def close(self) -> None:
        pass


def hear(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)


class Trial:
    """One budget: sessions until one ends by itself, the others killed; what the ledger says goes on to the next."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.price = Price(chance.choice([0.0, 1e-6, 1e-4]), chance.uniform(1e-6, 1e-3))
        self.server = Server(self.price, chance)
        self.rows = [self._row(number) for number in range(chance.randint(5, 80))]
        self.pending = list(self.rows)
        self.known_usd = self.maybe_usd = 0.0
        self.limit_usd = chance.uniform(0.1, 1.5) * len(self.rows) * self.price.usd(300, 30)
        self.reason: StopReason | None = None
        self.sessions = 0
        while self.reason is None:
            self.sessions += 1
            run_virtual(self._session)
            self._check()

    def _row(self, number: int) -> Row:
        asked = without_bound(number) if self.chance.random() < 0.05 else body(self.chance, number)
        return Row(number, {"custom_id": str(number), "url": "/v1/chat/completions", "body": asked})

    async def _session(self) -> None:
        budget = Budget(self.limit_usd, self.known_usd + self.maybe_usd, self.maybe_usd)
        figures = [(0, 0, 0)]
        budget.record = lambda *told: figures.append(told)
        store = FakeStore()
        run = self._run(store)
        running = asyncio.ensure_future(run.execute(RunLimits(budget=budget)))
        lives_s = self.chance.expovariate(0.5) if self.sessions < 4 and self.chance.random() < 0.7 else 1e6
        await asyncio.wait([running], timeout=lives_s)
        self._take_over(figures[-1])
        if running.done():
            self.reason, _ = running.result()
            assert budget.reserved_usd == budget.sending_usd == 0.0
        else:
            await self._die(running)
        lost = set(self.chance.sample(sorted(store.outcomes), len(store.outcomes) // 10)) if self.reason is None else ()
        self.pending = [row for row in self.pending if row.index not in store.outcomes or row.index in lost]

    def _take_over(self, figures: tuple[int, int, int]) -> None:
        self.known_usd += figures[0] / USD
        self.maybe_usd += figures[1] / USD

    async def _die(self, running: asyncio.Future[tuple[StopReason, str]]) -> None:
        """What is dropped now nobody has recorded."""
        self.server.is_gone = True
        running.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([running])
        self.server.is_gone = False

    def _run(self, store: FakeStore) -> Run:
        endpoint = {"model": "vllm/m", "url": "http://localhost:1/v1", "price": self.price.object()}
        job = Job.model_validate({"source": "b.jsonl", "endpoints": [endpoint], "budget_usd": self.limit_usd})
        [resolved] = priced(job, resolve_endpoints(job))
        prices = BodyPrices(job, resolved)
        provider = BatchProvider(self.server, resolved.resolved, resolved.credentials)
        clock = FakeClock(self.chance.randrange(1 << 30))
        feed = FakeFeed(self.pending)
        run = Run([feed], store, clock, RunStats(Before(), clock.now, lambda: len(self.pending)))
        config = LaneConfig(
            "lane",
            "m",
            self.chance.randint(1, 64),
            price=resolved.price,
            price_of=prices.of,
            worst_usd=prices.worst_usd(provider.body),
        )
        rpm = self.chance.choice([None, 60.0, 600.0])
        gate = RateGate(RateLimiter(Limits(requests_per_min=rpm)), clock)
        rules = RowRules(BatchBodies(prices.bounded), {}, None, RetryRules(attempts=3, backoff_s=0.1))
        run.add(Lane(config, provider, clock, run.notify, gate, run.failover.join(feed)), rules)
        return run

    def _check(self) -> None:
        charged_usd = self.known_usd + self.maybe_usd
        server = self.server
        assert server.billed_usd <= self.limit_usd + 1e-9, "overshot"
        assert charged_usd <= self.limit_usd + 1e-9, "charged above the budget"
        assert charged_usd <= server.most_usd + 1e-9, "charged more than what was sent may cost"
        assert charged_usd >= server.billed_usd - 1e-9, "charged less than was billed"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_random_budget_is_overshot_nor_charged_more_than_was_sent(seed: int) -> None:
    trials = [Trial(seed * BUDGETS + number) for number in range(BUDGETS)]
    assert sum(trial.sessions > 1 for trial in trials) > BUDGETS / 5, "hardly anything was killed"
    assert {StopReason.BUDGET, StopReason.FINISHED} <= {trial.reason for trial in trials}
