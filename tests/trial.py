"""One run of the engine in virtual time, for tests to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.virtual import Answering, FakeClock, FakeFeed, FakeProvider, FakeStore, run_virtual

from rowmill.core.limits.concurrency import START
from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.replies.steps import RetryRules
from rowmill.core.requests.prompts import compile_prompt
from rowmill.engine.lane import Lane
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.run import Run, RunLimits
from rowmill.engine.stats import Before, RunStats
from rowmill.engine.worker import RowRules
from rowmill.errors import FailureKind, StopReason
from rowmill.events import Event
from rowmill.records import Failure, Message, Row


def failure(kind: FailureKind, **fields: object) -> Failure:
    return Failure(kind, f"it is {kind}", **fields)  # type: ignore[arg-type]


class Trial:
    """One run over `rows` rows against a provider that answers by `answer`."""

    def __init__(self, rows: int | Sequence[Row], answer: Answering | FakeProvider, **options: object) -> None:
        settings = {"in_flight": 20, "attempts": 4, "latency_s": 0.1, "max_outage_s": 600.0, "empty": "send"}
        settings.update(options)
        if isinstance(rows, int):
            rows = [Row(index, {"text": str(index)}) for index in range(rows)]
        latency_s = float(str(settings["latency_s"]))
        self.provider = answer if isinstance(answer, FakeProvider) else FakeProvider(answer, latency_s)
        self.store = FakeStore()
        self.events: list[Event] = []
        self.settings = settings
        self.seconds = 0.0
        self.reason, self.message = run_virtual(lambda: self._go(rows))

    async def _go(self, rows: Sequence[Row]) -> tuple[StopReason, str]:
        clock = FakeClock()
        started = clock.now()
        retry = RetryRules(
            attempts=int(str(self.settings["attempts"])),
            row_timeout_s=float(str(self.settings.get("row_timeout_s", 900.0))),
        )
        rules = RowRules(compile_prompt([Message("user", "{{ text }}")]), {}, None, retry, str(self.settings["empty"]))
        feed = FakeFeed(rows)
        stats = RunStats(Before(), clock.now, lambda: len(rows))
        self.run = Run([feed], self.store, clock, stats, [self])
        stated = Limits(requests_per_min=self.settings.get("rpm"))  # type: ignore[arg-type]
        config = LaneConfig(
            "lane",
            "model",
            in_flight=None if self.settings["in_flight"] == "auto" else int(str(self.settings["in_flight"])),
            most_in_flight=int(str(self.settings.get("most_in_flight", 1024))),
            max_outage_s=float(str(self.settings["max_outage_s"])),
            first_in_flight=int(str(self.settings.get("first_in_flight", START))),
        )
        self.limiter = RateLimiter(stated)
        gate = RateGate(self.limiter, clock, stated=stated)
        peers = self.run.failover.join(feed)
        self.run.add(Lane(config, self.provider, clock, self.run.notify, gate, peers), rules)
        duration = self.settings.get("max_duration_s")
        rate = self.settings.get("max_failure_rate")
        limits = RunLimits(
            None if duration is None else float(str(duration)), None if rate is None else float(str(rate))
        )
        result = await self.run.execute(limits)
        self.seconds = clock.now() - started
        return result

    def notify(self, event: Event) -> None:
        self.events.append(event)

    @property
    def statuses(self) -> Counter[str]:
        return Counter(outcome.status.value for outcome in self.store.outcomes.values())
