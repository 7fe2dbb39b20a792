"""The engine's limits against model servers, in virtual time (issue: what must be reached)."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque

import pytest
from tests.trial import Trial, failure
from tests.virtual import FakeProvider, ok

from rowmill.errors import FailureKind, StopReason
from rowmill.records import Failure, RawReply, Request


class QueueingServer(FakeProvider):
    """Serves `slots` at a time, in order; the rest queues and nothing is refused."""

    def __init__(self, slots: int, median_s: float = 0.5, sigma: float = 0.3) -> None:
        super().__init__(lambda index, number, at: ok())
        self._slots = asyncio.Semaphore(slots)
        self._chance = random.Random(5)
        self._median_s, self._sigma = median_s, sigma
        self.latencies: list[float] = []
        self.in_flight_at: list[tuple[float, int]] = []

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.in_flight += 1
        self.in_flight_at.append((started, self.in_flight))
        async with self._slots:
            await asyncio.sleep(self._median_s * math.exp(self._chance.gauss(0.0, self._sigma)))
        self.in_flight -= 1
        self.latencies.append(loop.time() - started)
        return RawReply(200, {}, b"yes", loop.time() - started)


class StubbornServer(FakeProvider):
    """Serves `slots` at a time, in order, and goes on with what the client has given up after `patience_s`."""

    def __init__(self, slots: int, service_s: float, patience_s: float) -> None:
        super().__init__(lambda index, number, at: ok())
        self._slots = asyncio.Semaphore(slots)
        self._service_s, self._patience_s = service_s, patience_s
        self._chance = random.Random(3)
        self._services: set[asyncio.Future[None]] = set()
        self.served = 0

    async def _serve(self) -> None:
        async with self._slots:
            await asyncio.sleep(self._service_s * math.exp(self._chance.gauss(0.0, 0.2)))
        self.served += 1

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        loop = asyncio.get_running_loop()
        started = loop.time()
        service = asyncio.ensure_future(self._serve())
        self._services.add(service)
        service.add_done_callback(self._services.discard)
        done, _ = await asyncio.wait([service], timeout=self._patience_s)
        if not done:
            return failure(FailureKind.TIMEOUT)
        return RawReply(200, {}, b"yes", loop.time() - started)


class QuotaServer(FakeProvider):
    """Admits `cap` requests in any `window_s`, refuses the others with what is to be waited, or without."""

    def __init__(self, cap: int, window_s: float, *, announces: bool = False, retry_after: bool = True) -> None:
        super().__init__(lambda index, number, at: ok())
        self._cap, self._window_s = cap, window_s
        self._admitted: deque[float] = deque()
        self._chance = random.Random(6)
        self._headers = {"x-ratelimit-limit-requests": str(int(cap * 60 / window_s))} if announces else {}
        self._retry_after = retry_after
        self.log: list[tuple[float, bool]] = []

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        now = asyncio.get_running_loop().time()
        while self._admitted and self._admitted[0] <= now - self._window_s:
            self._admitted.popleft()
        admitted = len(self._admitted) < self._cap
        self.log.append((now, admitted))
        if admitted:
            self._admitted.append(now)
        wait_s = 0.0 if admitted else self._admitted[0] + self._window_s - now
        await asyncio.sleep(self._chance.uniform(0.05, 0.3))
        if admitted:
            return RawReply(200, self._headers, b"yes", 0.1)
        return failure(FailureKind.THROTTLED, retry_after_s=wait_s if self._retry_after else None)

    def refused_share(self, after_s: float = 0.0) -> float:
        start = self.log[0][0] + after_s
        seen = [admitted for at, admitted in self.log if at >= start]
        return seen.count(False) / len(seen)

    def used_share(self) -> float:
        seconds = self.log[-1][0] - self.log[0][0]
        return sum(admitted for _, admitted in self.log) / (self._cap * max(seconds / self._window_s, 1.0))


@pytest.mark.parametrize("in_flight", [5, 20, 64])
def test_a_stated_limit_is_never_broken_and_mostly_used(in_flight: int) -> None:
    server = QuotaServer(600, 60.0)
    trial = Trial(3000, server, in_flight=in_flight, rpm=600.0)
    assert trial.statuses == {"ok": 3000}
    assert server.refused_share() == 0
    assert server.used_share() >= 0.9


@pytest.mark.parametrize("in_flight", [5, 20, 64])
def test_an_announced_limit_is_adopted(in_flight: int) -> None:
    server = QuotaServer(600, 60.0, announces=True)
    trial = Trial(3000, server, in_flight=in_flight)
    assert trial.statuses == {"ok": 3000}
    assert server.refused_share() <= 0.02


@pytest.mark.parametrize("in_flight", [5, 20, 64])
def test_a_limit_that_nobody_tells_is_learned(in_flight: int) -> None:
    server = QuotaServer(600, 60.0)
    trial = Trial(4000, server, in_flight=in_flight)
    assert trial.statuses == {"ok": 4000}
    assert server.refused_share(after_s=120.0) <= 0.05
    assert server.used_share() >= 0.85


def test_auto_finds_the_slots_of_a_server_that_queues() -> None:
    auto, fixed = QueueingServer(64), QueueingServer(64)
    found = Trial(6000, auto, in_flight="auto")
    best = Trial(6000, fixed, in_flight=64)
    assert found.statuses == {"ok": 6000}
    late = [number for at, number in auto.in_flight_at if at > auto.in_flight_at[-1][0] - 15]
    assert 60 <= sum(late) / len(late) <= 96
    assert best.seconds / found.seconds >= 0.9  # the start, from 8 on, included
    half = len(auto.latencies) // 2
    p95 = [sorted(s.latencies[half:])[int(0.95 * half)] for s in (auto, fixed)]
    assert p95[0] <= 1.6 * p95[1]


@pytest.mark.parametrize(("slots", "service_s"), [(1, 20.0), (2, 40.0), (4, 50.0)])
def test_auto_finds_a_slow_server_that_works_on_for_nobody_after_timeouts(slots: int, service_s: float) -> None:
    rows = 200 * slots
    server = StubbornServer(slots, service_s, patience_s=120.0)
    trial = Trial(rows, server, in_flight="auto")
    assert trial.statuses == {"ok": rows}
    assert server.served <= 1.1 * rows
    assert trial.seconds <= 1.1 * rows * service_s / slots


def test_auto_starts_where_it_is_told() -> None:
    server = QueueingServer(1)
    trial = Trial(100, server, in_flight="auto", first_in_flight=1)
    assert trial.statuses == {"ok": 100}
    assert max(number for _, number in server.in_flight_at) <= 2


def test_auto_never_passes_the_bound_that_descriptors_set() -> None:
    server = QueueingServer(500, median_s=0.1)
    trial = Trial(2000, server, in_flight="auto", most_in_flight=24)
    assert trial.statuses == {"ok": 2000}
    assert max(number for _, number in server.in_flight_at) <= 24


def test_rows_that_wait_for_their_rate_are_let_go_when_the_run_stops() -> None:
    trial = Trial(100, QuotaServer(600, 60.0), in_flight=20, rpm=1.0, max_duration_s=30.0)
    assert trial.reason is StopReason.MAX_DURATION
    assert trial.seconds < 40


def test_a_storm_of_refusals_leaves_no_lasting_brake() -> None:
    """100 rows a second before and after 30 s of 429s: the storm is no rate limit."""

    def answer(index: int, number: int, at: float) -> RawReply | Failure:
        return failure(FailureKind.THROTTLED) if 1003 < at < 1033 else ok()

    trial = Trial(6000, answer, in_flight=20, latency_s=0.2)
    assert trial.statuses == {"ok": 6000}
    assert trial.seconds < 60 + 30 + 60  # its own minute, the storm, and a minute to trust the server again
