"""A loop whose time is virtual, and fakes of what the engine talks to: tests of hours run in milliseconds."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from rowmill.records import Attempt, Failure, Outcome, RawReply, Reply, Request, Row

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: time jumps to the next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("the loop would wait for ever")
        self.loop.virtual_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual_s = 1000.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual_s


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


class FakeClock:
    """The virtual loop's time; `random` gives what a seed gives."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now()

    def random(self) -> float:
        return self._random.random()


class FakeFeed:
    """Rows from a list, all there from the start."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = deque(rows)
        self.error: Exception | None = None

    @property
    def exhausted(self) -> bool:
        return not self._rows

    def subscribe(self, listener: Callable[[], None]) -> None:
        pass

    def start(self) -> None:
        pass

    def take(self) -> Row | None:
        return self._rows.popleft() if self._rows else None

    async def stop(self) -> None:
        pass


class FakeStore:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.outcomes: dict[int, Outcome] = {}

    def save_attempt(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def save_outcome(self, outcome: Outcome) -> None:
        assert outcome.index not in self.outcomes, "a row has two outcomes"
        self.outcomes[outcome.index] = outcome

    def full(self) -> bool:
        return False

    async def room(self) -> None:
        pass


Answering = Callable[[int, int, float], RawReply | Failure]


class FakeProvider:
    """Answers row `[[n]]`'s request number k at time t with `answer(n, k, t)` after `latency_s`."""

    def __init__(self, answer: Answering, latency_s: float = 0.1) -> None:
        self._answer = answer
        self._latency_s = latency_s
        self.sent: list[tuple[float, int]] = []
        self.requests: dict[int, int] = {}
        self.in_flight = 0
        self.peak_in_flight = 0

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        loop = asyncio.get_running_loop()
        index = int(request.messages[-1].content)
        number = self.requests.get(index, 0)
        self.requests[index] = number + 1
        self.sent.append((loop.time(), index))
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            seen = self._answer(index, number, loop.time())
            await asyncio.sleep(self._latency_s)
        finally:
            self.in_flight -= 1
        return seen

    def read(self, raw: RawReply) -> Reply | Failure:
        return Reply(raw.body.decode(), "stop")

    def reload_credentials(self) -> bool:
        return False

    async def close(self) -> None:
        pass


def ok(text: str = "yes") -> RawReply:
    return RawReply(200, {}, text.encode(), 0.1)
