"""One endpoint and all that belongs to it: its slots, its breaker, its waiting rows.

Workers pull steps from it.  It must not know how a row is rendered, read or saved, nor the run's other lanes: new
rows, and rows that go to another lane, pass through `Peers`.
"""

from __future__ import annotations

from collections.abc import Callable

from rowmill.core.limits.concurrency import AdaptiveLimit
from rowmill.core.replies.steps import RowState
from rowmill.engine.circuit_breaker import BREAKER_ROWS, CircuitBreaker, Verdict
from rowmill.engine.first_rows import ALIKE_ROWS, FirstRowsCheck
from rowmill.engine.idle_workers import IdleWorkers
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.peers import Peers
from rowmill.engine.rate_gate import RateGate
from rowmill.engine.retry_queue import RetryQueue
from rowmill.engine.stats import LaneStats
from rowmill.errors import FailureKind, JobError, StopReason
from rowmill.events import Event, LaneDisabled, LanePaused, LaneResumed, LimitChanged
from rowmill.failure_kinds import RENEWABLE, SERVER_FAULTS
from rowmill.ports import Clock, Provider
from rowmill.records import Failure, RawReply

MOST_WAITING_ROWS = 1000
KEY_READ_EVERY_S = 0.25
OK = 200


class Lane:
    """Admits steps one at a time, at most `limit` at once: due retries before new rows, none while it backs off."""

    def __init__(
        self,
        config: LaneConfig,
        provider: Provider,
        clock: Clock,
        notify: Callable[[Event], None],
        gate: RateGate,
        peers: Peers,
    ) -> None:
        self.peers = peers
        self.first_rows = FirstRowsCheck(has_succeeded=False)
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
        self.peak_in_flight = 0
        self.stats = LaneStats()
        self.breaker = CircuitBreaker(config.max_outage_s, clock.random)
        self._clock = clock
        self._notify = notify
        self._retry_queue = RetryQueue()
        self._idle = IdleWorkers(self._ring)
        self._sleepers = self._idle.waiters  # looked at for every row
        self._stopping = False
        self._key_read_at_s = self._key_changed_at_s = float("-inf")

    @property
    def waiting(self) -> int:
        """Rows that wait for a retry."""
        return len(self._retry_queue.entries)

    def why(self) -> str | None:
        """What the lane waits for, in words; None while it waits for nothing.  Safe from any thread."""
        return self.breaker.words(self._clock.now()) or self.gate.why()

    async def take(self) -> RowState | None:
        """The next step for a worker, which holds a slot until `release`; None when there is nothing left to do."""
        while True:
            now = self._clock.now()
            state = self.take_now(now)
            if state is not None:
                return state
            if self._is_over():
                self.peers.wake_all()
                return None
            await self._idle.rest(now, self._due_at())

    def take_now(self, now: float) -> RowState | None:
        """The same where there is one at once, else None."""
        state = self._admit(now)
        if state is not None:
            self.in_flight += 1
            if self._sleepers:
                self.wake()
        return state

    def release(self) -> None:
        """Gives the slot back."""
        self.in_flight -= 1
        if self._sleepers:
            self.wake()

    def put_back(self, state: RowState, delay_s: float) -> None:
        """Lets a row wait for `delay_s` without holding a slot; in this lane, unless its trouble sends the row away."""
        may_leave = self.breaker.in_trouble and self.peers.is_shared
        # Once the lane is out for good, a row that nobody takes stays pending.
        if not (may_leave and (self.peers.take_over(state) or self.breaker.disabled is not None)):
            self._wait(state, delay_s)

    def receive(self, state: RowState) -> None:
        """Takes a row from another lane; it is due at once."""
        self._wait(state, 0.0)
        self.wake()

    def lend(self, may_go: Callable[[RowState], bool]) -> RowState | None:
        """Takes one waiting row out, where one may go."""
        return self._retry_queue.take(may_go)

    def hand_over_waiting(self) -> None:
        """Hands over what others may take; once the lane is out for good, nothing waits in it any more."""
        for due_s, _, state in self._retry_queue.drain():
            self.put_back(state, due_s - self._clock.now())

    def _wait(self, state: RowState, delay_s: float) -> None:
        self._retry_queue.add(state, self._clock.now() + delay_s)

    def may_send_now(self, state: RowState) -> bool:
        """Whether the lane's rates have room at once, which is then reserved."""
        return self.gate.reserve_now(state)

    async def may_send(self, state: RowState) -> bool:
        """Waits until the lane's rates have room; false where the breaker or a stop forbids the send meanwhile."""
        has_room = await self.gate.reserve(state, self._may_go)
        if self.peers.is_shared:
            self.wake()
        return has_room

    def sends(self, state: RowState) -> None:
        """A row's request goes out: every send is counted and numbered."""
        self.breaker.sent(state)
        self.stats.requests += 1
        self.sending += 1
        if self.sending > self.peak_in_flight:
            self.peak_in_flight = self.sending
        state.sent_at_s = self._clock.now()
        state.sent_at = self._clock.wall()

    def has_sent(self, state: RowState, raw: RawReply | Failure | None) -> None:
        """What came back, None where the request was dropped in flight."""
        if type(raw) is RawReply:
            self._read_headers(state, raw)
        elif raw is None:
            self.breaker.abandoned(state)
        self.sending -= 1

    def succeeded(self, state: RowState) -> None:
        """A valid answer came."""
        was_probing = self.breaker.probing
        self.breaker.succeeded(state)
        self.stats.succeeded += 1
        if was_probing and not self.breaker.probing:
            self._resumed()

    def judge(self, state: RowState, failure: Failure) -> Verdict:
        """Counts a failure and decides whether it is the row's or the lane's."""
        was_probing, was_disabled = self.breaker.probing, self.breaker.disabled is not None
        self._settle(state, failure)
        if failure.kind in RENEWABLE and self._has_other_key(state):
            self.breaker.abandoned(state)
            return Verdict(uses_attempt=False)
        verdict = self.breaker.failed(state, failure, self._clock.now(), alone=self.peers.is_last_row())
        self.stats.failed(failure.kind)
        self.breaker.check_outage(self._clock.now())
        if self.breaker.disabled is not None:
            if not was_disabled:
                self._disabled()
        elif verdict.pause_s is not None:
            self.gate.disturb()
            why = self.breaker.words(self._clock.now()) or failure.message
            self._notify(LanePaused(self.config.name, verdict.pause_s, why))
            self.peers.troubled()
        elif was_probing and not self.breaker.probing:
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
            is_timeout = kind is FailureKind.TIMEOUT and not self.breaker.probing
            if is_timeout and self._adaptive.on_timeout(state.sent_at_s, self._clock.now()):
                self._moved()

    def _read_headers(self, state: RowState, raw: RawReply) -> None:
        self.gate.adopt_limits(raw.headers)
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
            self._notify(LimitChanged(self.config.name, self._adaptive.goal, self._adaptive.why))
        if rises:
            self.grown()
            self.wake()

    def _has_other_key(self, state: RowState) -> bool:
        """Whether the key, read again, is another one than the row was sent with."""
        now = self._clock.now()
        if state.sent_at_s < self._key_changed_at_s:
            return True
        if now - self._key_read_at_s < KEY_READ_EVERY_S:
            return False
        self._key_read_at_s = now
        try:
            has_changed = self.provider.reload_credentials()
        except JobError:
            return False
        if has_changed:
            self._key_changed_at_s = now
        return has_changed

    def _may_go(self) -> bool:
        return not self._stopping and self.breaker.may_send(self._clock.now())

    def must_hold(self, state: RowState, failure: Failure) -> bool:
        """Whether a row that has used up its attempts must wait: its failures may still turn out to be an outage."""
        if failure.kind not in SERVER_FAULTS or self.breaker.may_end(state):
            return False
        return not self.peers.is_exhausted() or len(self._retry_queue.entries) + self.in_flight >= BREAKER_ROWS

    def stop(self) -> None:
        """Admits nothing any more; what is in flight goes on."""
        self._stopping = True
        self.gate.disturb()
        self.wake_all()

    def give_up(self, reason: StopReason, why: str) -> None:
        """Takes the lane out for the rest of the run."""
        self.breaker.disable(reason, why)
        self._disabled()

    def wake(self) -> None:
        """Lets one idle worker look again; it passes the word on while there is more to do."""
        self._idle.wake()

    def _admit(self, now: float) -> RowState | None:
        """Invariant: whoever gets a row here counts as in flight until `release`."""
        if self._stopping or self.in_flight >= self.limit or not self.breaker.may_send(now):
            return None
        if self.peers.is_shared and self.gate.is_waited_for:
            return None  # whoever waits at the gate holds a row that another lane could send
        if self._retry_queue.entries:
            state = self._retry_queue.take_due(now)
            if state is not None:
                return self._better_probe(state, now) if self.breaker.probing else state
            if len(self._retry_queue.entries) >= MOST_WAITING_ROWS + self.limit:
                return None
        if not self.first_rows.is_over:
            held_rows = self.first_rows.held_rows
            if held_rows and held_rows + self.in_flight >= max(self.limit, ALIKE_ROWS):
                return None
        state = self.peers.next_row()
        return self.peers.probe() if state is None and self.breaker.probing else state

    def _better_probe(self, state: RowState, now: float) -> RowState:
        """Another row, where this one had better not be the probe and there is one."""
        if not self.breaker.avoids(state):
            return state
        other = self._retry_queue.take_due(now)
        if other is not None and self.breaker.avoids(other):
            self._wait(other, 0.0)
            other = None
        other = other or self.peers.next_row()
        if other is None:
            return state
        self._wait(state, 0.0)
        return other

    def _is_over(self) -> bool:
        return self._stopping or self.breaker.disabled is not None or self.peers.is_over()

    def _disabled(self) -> None:
        self._notify(LaneDisabled(self.config.name, self.breaker.disabled_why))
        self.gate.disturb()
        self.peers.troubled()
        self.peers.wake_all()

    def _due_at(self) -> float | None:
        """When time alone lets a step go: the end of the pause, or the first waiting row's turn."""
        first_s = self._retry_queue.first_due_s
        return self.breaker.until_s if first_s is None else max(self.breaker.until_s, first_s)

    def _ring(self) -> None:
        was_disabled = self.breaker.disabled is not None
        self.breaker.check_outage(self._clock.now())
        if self.breaker.disabled is not None and not was_disabled:
            self._disabled()
        self.wake()

    def _resumed(self) -> None:
        self._notify(LaneResumed(self.config.name))
        self.peers.well_again()
        self.wake()

    def wake_all(self) -> None:
        """Lets every idle worker look again."""
        self._idle.wake_all()
