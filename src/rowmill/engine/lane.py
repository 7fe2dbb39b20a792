"""One endpoint and all that belongs to it: its slots, its health, its waiting rows.

Workers pull steps from it; it never pushes.  It must not know how a row is rendered, read or saved.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from rowmill.engine.feed import Feed
from rowmill.engine.gate import RateGate
from rowmill.engine.health import BREAKER_ROWS, SERVER_FAULTS, Health, Verdict
from rowmill.engine.opening import ALIKE_ROWS
from rowmill.engine.tally import LaneTally
from rowmill.errors import FailureKind, JobError
from rowmill.events import Event, LaneParked, LanePaused, LaneResumed, LimitChanged
from rowmill.limits.concurrency import START, AdaptiveLimit
from rowmill.ports import Clock, Provider
from rowmill.prices import Price
from rowmill.records import Failure, RawReply, Request
from rowmill.steps import RowState

MOST_WAITING_ROWS = 1000
OK = 200
RENEWABLE = frozenset({FailureKind.CREDENTIALS, FailureKind.FORBIDDEN})
TIMER_TICK_S = 0.001  # the loop's clock may stand a little before what a timer was set to


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """What a lane is told; times are in seconds.

    `in_flight` is the concurrency limit (>= 1), None lets it adapt from `first_in_flight` up to `most_in_flight`;
    `price` is None when it is unknown; `worst_usd` says what a request may cost at most, None where that is not known.
    """

    name: str
    model: str
    in_flight: int | None = None
    most_in_flight: int = 1024
    timeout_s: float = 120.0
    max_outage_s: float = 600.0
    price: Price | None = None
    worst_usd: Callable[[Request], float] | None = None
    first_in_flight: int = START


class Lane:
    """Admits steps one at a time: due retries before new rows, none while paused, at most `limit` at once."""

    def __init__(
        self,
        config: LaneConfig,
        provider: Provider,
        feed: Feed,
        clock: Clock,
        tell: Callable[[Event], None],
        gate: RateGate,
    ) -> None:
        self.config = config
        self.provider = provider
        self.gate = gate
        self.limit = config.in_flight or 0
        self._adaptive: AdaptiveLimit | None = None
        if config.in_flight is None:
            self._adaptive = AdaptiveLimit(config.first_in_flight, maximum=config.most_in_flight)
            self.limit = self._adaptive.limit
        self.grown: Callable[[], None] = lambda: None
        self.in_flight = 0
        self.sending = 0
        self.rows_on_trial = 0
        self.peak_in_flight = 0
        self.tally = LaneTally()
        self.health = Health(config.max_outage_s, clock.random)
        self._feed = feed
        self._clock = clock
        self._tell = tell
        self._heap: list[tuple[float, int, RowState]] = []
        self._order = count()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._stopping = False
        self._has_renewed = False
        feed.subscribe(self.wake)

    @property
    def waiting(self) -> int:
        """Rows that wait for a retry."""
        return len(self._heap)

    def why(self) -> str | None:
        """What the lane waits for, in words; None while it waits for nothing.  Safe from any thread."""
        return self.health.words(self._clock.now()) or self.gate.why()

    async def take(self) -> RowState | None:
        """The next step for a worker, which holds a slot until `release`; None when there is nothing left to do."""
        while True:
            now = self._clock.now()
            state = self._admit(now)
            if state is not None:
                self.in_flight += 1
                if self._idle:
                    self.wake()
                return state
            if self._is_over():
                self._wake_all()
                return None
            await self._rest(now)

    def release(self) -> None:
        """Gives the slot back."""
        self.in_flight -= 1
        if self._idle:
            self.wake()

    def put_back(self, state: RowState, delay_s: float) -> None:
        """Lets a row wait for `delay_s` without holding a slot."""
        heapq.heappush(self._heap, (self._clock.now() + delay_s, next(self._order), state))

    def may_send_now(self, state: RowState) -> bool:
        """Whether the lane's rates have room at once, which is then reserved."""
        return self.gate.reserve_now(state)

    async def may_send(self, state: RowState) -> bool:
        """Waits for the lane's rates; false where the lane meanwhile must not send: the step goes back."""
        return await self.gate.reserve(state, self._is_open)

    async def send(self, state: RowState, timeout_s: float) -> RawReply | Failure:
        """Sends a row's request; every send is counted and numbered."""
        assert state.request is not None
        self.health.sent(state)
        self.tally.requests += 1
        self.sending += 1
        self.peak_in_flight = max(self.peak_in_flight, self.sending)
        state.sent_at_s = self._clock.now()
        raw: RawReply | Failure | None = None
        try:
            raw = await self.provider.send(state.request, timeout_s)
            return raw
        finally:
            if isinstance(raw, RawReply):
                self._heard(state, raw)
            elif raw is None:
                self.health.abandoned(state)
            self.sending -= 1

    def succeeded(self, state: RowState) -> None:
        """A valid answer came."""
        was_probing = self.health.probing
        self.health.succeeded(state)
        self.tally.succeeded += 1
        if was_probing and not self.health.probing:
            self._resumed()

    def judge(self, state: RowState, failure: Failure) -> Verdict:
        """Counts a failure and decides whether it is the row's or the lane's."""
        was_probing, was_parked = self.health.probing, self.health.parked is not None
        self._settle(state, failure)
        if failure.kind in RENEWABLE and self._renewed():
            self.health.abandoned(state)
            return Verdict(charged=False)
        verdict = self.health.failed(state, failure, self._clock.now(), alone=self.is_alone())
        self.tally.failed(failure.kind)
        self.health.check_outage(self._clock.now())
        if self.health.parked is not None:
            if not was_parked:  # else others in flight were refused alike
                self._tell(LaneParked(self.config.name, self.health.parked_why))
            self._wake_all()
        elif verdict.pause_s is not None:
            self.gate.disturb()
            why = self.health.words(self._clock.now()) or failure.message
            self._tell(LanePaused(self.config.name, verdict.pause_s, why))
        elif was_probing and not self.health.probing:
            self._resumed()
        return verdict

    def _settle(self, state: RowState, failure: Failure) -> None:
        """Tells quota and limit of a failure; a reply with usage has settled before."""
        kind = failure.kind
        if kind is FailureKind.THROTTLED:
            self.gate.refused(state)
        elif kind is FailureKind.UNREACHABLE:
            self.gate.unsent(state)
        else:
            self.gate.kept(state)
        if self._adaptive is None:
            return
        if kind is FailureKind.THROTTLED and self._adaptive.on_throttle(state.sent_at_s, self._clock.now()):
            self._moved()
        elif kind in SERVER_FAULTS:
            self._adaptive.on_server_error()
            # A probe goes alone: that it waits says nothing about how many may.
            is_timeout = kind is FailureKind.TIMEOUT and not self.health.probing
            if is_timeout and self._adaptive.on_timeout(state.sent_at_s, self._clock.now()):
                self._moved()

    def _heard(self, state: RowState, raw: RawReply) -> None:
        self.gate.heard(raw.headers)
        adaptive = self._adaptive
        if adaptive is not None and raw.status == OK:
            moved = adaptive.on_success(raw.latency_s, state.sent_at_s, self.sending, self._clock.now())
            if moved or adaptive.limit != self.limit:
                self._moved(announce=moved)

    def _moved(self, *, announce: bool = True) -> None:
        assert self._adaptive is not None
        rises = self._adaptive.limit > self.limit
        self.limit = self._adaptive.limit
        if announce:
            self._tell(LimitChanged(self.config.name, self._adaptive.goal, self._adaptive.why))
        if rises:
            self.grown()
            self.wake()

    def _renewed(self) -> bool:
        """Whether the key, read again once, is another one by now."""
        if self._has_renewed:
            return False
        self._has_renewed = True
        try:
            return self.provider.reload_credentials()
        except JobError:
            return False

    def _is_open(self) -> bool:
        return not self._stopping and self.health.may_send(self._clock.now())

    def must_hold(self, state: RowState, failure: Failure) -> bool:
        """Whether a row that has used up its attempts must wait: its failures may be an outage not yet told."""
        if failure.kind not in SERVER_FAULTS or self.health.may_end(state):
            return False
        return not self._feed.exhausted or len(self._heap) + self.in_flight >= BREAKER_ROWS

    def is_alone(self) -> bool:
        """Whether the row at hand is the only one left in this lane."""
        return self._feed.exhausted and not self._heap and self.in_flight <= 1

    def stop(self) -> None:
        """Admits nothing any more; what is in flight goes on."""
        self._stopping = True
        self.gate.disturb()
        self._wake_all()

    def put_on_trial(self, rows: int) -> None:
        """Tells how many rows are held back as refused alike: no new ones are sent until one has done better."""
        self.rows_on_trial = rows
        self.wake()

    def wake(self) -> None:
        """Lets one idle worker look again; it passes the word on while there is more to do."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _admit(self, now: float) -> RowState | None:
        """Invariant: whoever gets a row here counts as in flight until `release`."""
        if self._stopping or self.in_flight >= self.limit or not self.health.may_send(now):
            return None
        if self._heap and self._heap[0][0] <= now:
            state = heapq.heappop(self._heap)[2]
            if not self.health.avoids(state):
                return state
            other = self._other_probe(now)
            if other is None:
                return state
            self.put_back(state, 0.0)
            return other
        if len(self._heap) >= MOST_WAITING_ROWS + self.limit:
            return None
        if self.rows_on_trial and self.rows_on_trial + self.in_flight >= max(self.limit, ALIKE_ROWS):
            return None
        row = self._feed.take()
        return None if row is None else RowState(row)

    def _other_probe(self, now: float) -> RowState | None:
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        row = self._feed.take()
        return None if row is None else RowState(row)

    def _is_over(self) -> bool:
        if self._stopping or self.health.parked is not None:
            return True
        return self._feed.exhausted and not self._heap and self.in_flight == 0

    async def _rest(self, now: float) -> None:
        """Sleeps until something changes that may let a step go, or until a waiting row is due.

        Invariant: `now` is when nothing could be admitted, so that nothing falls due unseen in between.
        """
        due = self._due_at()
        if due is not None and due > now and (self._timer is None or due < self._rings_at):
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._rings_at = due
            self._timer = loop.call_later(max(due - now, TIMER_TICK_S), self._ring)
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        await waiter

    def _due_at(self) -> float | None:
        """When time alone lets a step go: the end of the pause, or the first waiting row's turn."""
        if not self._heap:
            return self.health.until_s
        return max(self.health.until_s, self._heap[0][0])

    def _ring(self) -> None:
        self._timer = None
        self.health.check_outage(self._clock.now())
        self.wake() if self.health.parked is None else self._wake_all()

    def _resumed(self) -> None:
        self._tell(LaneResumed(self.config.name))
        self.wake()

    def _wake_all(self) -> None:
        while self._idle:
            self.wake()
