"""Whether a lane may send, and whose fault a failure is: the lane's, or the row's own.

Pure state and arithmetic: time and randomness are passed in.  It must not know of coroutines.

The breaker is *closed* while the lane sends as it would.  A lane's trouble (throttled, server gone) has it *back off*:
nobody sends until the pause is over.  Then it is *half-open*: one request at a time is sent, as a probe.  A success
closes it; a refusal backs off again, for longer.  *Disabled* is final for the session.

A refused key is a lane's trouble too: refused as a few probes with no success between, it disables the lane.

A row is itself the trouble when requests sent after it were accepted while it was not, or
when it was refused as a probe and the next probe was accepted; from then on its failures use up its attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rowmill.core.replies.steps import RowState, trouble_of
from rowmill.errors import FailureKind, StopReason
from rowmill.failure_kinds import (
    DISABLES_AFTER_TRIES,
    DISABLES_AT_ONCE,
    LANE_FAULTS,
    MAY_BE_ROWS,
    PAUSES,
    SERVER_FAULTS,
)
from rowmill.records import Failure

BREAKER_ATTEMPTS = 20
BREAKER_ROWS = 10
GONE_ROWS = 3
KEY_TRIES = 4
FIRST_PROBE_S, LONGEST_PROBE_S = 0.25, 4.0
FIRST_THROTTLE_S, LONGEST_THROTTLE_S = 1.0, 15.0
FIRST_KEY_PROBE_S = 0.5

THROTTLED = FailureKind.THROTTLED.value


class Verdict(NamedTuple):
    """`uses_attempt`: the failure uses up one of the row's attempts.  `pause_s`: it began a pause of the lane."""

    uses_attempt: bool
    pause_s: float | None = None


class CircuitBreaker:
    """One lane's breaker: closed, backing off, half-open or disabled.

    It backs off until `until_s`, on the clock that `now` comes from; `disabled` says why, where it is.  `probing` holds
    from the beginning of a pause until the breaker closes: half-open is `probing` once `until_s` has passed.
    """

    def __init__(self, max_outage_s: float, random: Callable[[], float]) -> None:
        self.until_s = 0.0
        self.why: str | None = None
        self.probing = False
        self.throttled = False
        self.disabled: StopReason | None = None
        self.disabled_why = ""
        self.oks = 0
        self._max_outage_s = max_outage_s
        self._random = random
        self._sends = 0
        self._last_ok_number = 0
        self._overtaken_below = 0
        self._probe: RowState | None = None
        self._refused_probe: RowState | None = None
        self._episode_sends = 0
        self._waits = 0
        self._trouble_since_s: float | None = None
        self._failing_rows: set[int] = set()
        self._failing_attempts = 0
        self._key_refusals = 0

    @property
    def in_trouble(self) -> bool:
        """Whether the breaker is not closed: backing off, half-open or disabled."""
        return self.why is not None or self.disabled is not None

    @property
    def is_broken(self) -> bool:
        """Whether its trouble is more than a refused rate, so that others may take its rows over."""
        return self.disabled is not None or (self.why is not None and not self.throttled)

    def words(self, now: float) -> str | None:
        """Why the lane does not send as it would, and until when; None while nothing is wrong."""
        if self.disabled is not None:
            return f"out for this run: {self.disabled_why}"
        if self.why is None:
            return None
        left_s = self.until_s - now
        trouble = THROTTLED if self.throttled else "key refused" if self._key_refusals else "outage"
        return f"{trouble}, {f'{left_s:.1f} s left' if left_s > 0 else 'probing'}: {self.why}"

    def may_send(self, now: float) -> bool:
        """Whether one more request may go out now."""
        return self.disabled is None and now >= self.until_s and not (self.probing and self._probe is not None)

    def avoids(self, state: RowState) -> bool:
        """Whether another row makes a better probe: this one was refused as the last, or was itself the trouble."""
        return self.probing and (self._refused_probe is state or _is_suspect(state))

    def sent(self, state: RowState) -> None:
        """Numbers a send; the first one after a pause is the probe."""
        if self.probing and self._waits == 1:
            self._overtaken_below = self._last_ok_number
        trouble = state.trouble
        if trouble is None or not trouble.lane_failures:
            if state.send_number == 0:
                state.oks_at_start = self.oks
        elif 0 < state.send_number < self._overtaken_below:
            trouble.is_suspect = True
        self._sends += 1
        state.send_number = self._sends
        if self.probing:
            self._probe = state

    def succeeded(self, state: RowState) -> None:
        """A reply came that shows a working server, whatever it says about the row."""
        self.oks += 1
        if state.send_number > self._last_ok_number:
            self._last_ok_number = state.send_number
        self._key_refusals = 0
        if self._failing_attempts:
            self._failing_rows.clear()
            self._failing_attempts = 0
        if self._trouble_since_s is not None and state.send_number > self._episode_sends:
            self._close(state)

    def abandoned(self, state: RowState) -> None:
        """A send was cancelled, and shows nothing."""
        if self._probe is state:
            self._probe = None

    def failed(self, state: RowState, failure: Failure, now: float, *, alone: bool) -> Verdict:
        """Judges a failure.  `alone`: no other row is left that could show whether row or lane is at fault."""
        kind = failure.kind
        if kind in DISABLES_AT_ONCE:
            self.disable(DISABLES_AT_ONCE[kind], failure.message)
            return Verdict(uses_attempt=False)
        if kind in SERVER_FAULTS:
            return self._server_fault(state, failure, now)
        if kind not in LANE_FAULTS:
            self.succeeded(state)
            return Verdict(uses_attempt=True)
        uses_attempt = self._is_the_rows_own(state, kind, alone)
        trouble = trouble_of(state)
        trouble.lane_failures += 1
        trouble.oks_before = self.oks
        return Verdict(uses_attempt, self._lane_fault(state, failure, now, uses_attempt))

    def may_end(self, state: RowState) -> bool:
        """Whether server faults may end this row: not while they may still turn out to be an outage."""
        return self.oks > state.oks_at_start or self._failing_attempts >= BREAKER_ATTEMPTS

    def disable(self, reason: StopReason, why: str) -> None:
        """Takes the lane out for the rest of the session; the first reason stands."""
        if self.disabled is None:
            self.disabled, self.disabled_why = reason, why

    def check_outage(self, now: float) -> None:
        """Disables a lane that has had no success for `max_outage_s`."""
        since = self._trouble_since_s
        if since is not None and now - since >= self._max_outage_s:
            self.disable(StopReason.OUTAGE, f"no success for {now - since:.0f} s (max_outage_s): {self._cause()}")

    def _is_the_rows_own(self, state: RowState, kind: FailureKind, alone: bool) -> bool:
        if kind not in MAY_BE_ROWS:
            return False
        trouble = trouble_of(state)
        others_since = self.oks > trouble.oks_before and trouble.lane_failures > 0
        if kind in DISABLES_AFTER_TRIES:
            trouble.is_suspect |= others_since or (alone and self.oks > 0 and kind not in PAUSES)
            return trouble.is_suspect
        if kind is not FailureKind.THROTTLED:
            return others_since or (alone and (kind is FailureKind.RESET or self.oks > 0))
        guilty = self._last_ok_number > state.send_number or (trouble.is_suspect and (others_since or alone))
        trouble.is_suspect = trouble.is_suspect or guilty
        return guilty

    def _lane_fault(self, state: RowState, failure: Failure, now: float, uses_attempt: bool) -> float | None:
        kind = failure.kind
        is_of_key = kind in DISABLES_AFTER_TRIES
        if kind in PAUSES and not is_of_key:
            return self._pause(state, failure, now)
        if uses_attempt:
            self._probe_over(state)
            return None
        self._failing_attempts += 1
        self._failing_rows.add(state.row.index)
        is_shared = len(self._failing_rows) >= GONE_ROWS or (is_of_key and trouble_of(state).lane_failures >= GONE_ROWS)
        if not (kind in PAUSES or self.probing or is_shared):
            return None
        return self._key_refused(state, failure, now) if is_of_key else self._pause(state, failure, now)

    def _key_refused(self, state: RowState, failure: Failure, now: float) -> float | None:
        """One more try where it begins a pause or was the probe; what was in flight beside says nothing new."""
        if self._trouble_since_s is None or self._probe is state:
            self._key_refusals += 1
            if self._key_refusals >= KEY_TRIES:
                self.disable(DISABLES_AFTER_TRIES[failure.kind], failure.message)
                return None
        return self._pause(state, failure, now)

    def _server_fault(self, state: RowState, failure: Failure, now: float) -> Verdict:
        self._failing_attempts += 1
        if len(self._failing_rows) < BREAKER_ROWS:
            self._failing_rows.add(state.row.index)
        broken = self._failing_attempts >= BREAKER_ATTEMPTS and len(self._failing_rows) >= BREAKER_ROWS
        if self._probe is state or broken:
            return Verdict(uses_attempt=False, pause_s=self._pause(state, failure, now))
        return Verdict(uses_attempt=True)

    def _pause(self, state: RowState, failure: Failure, now: float) -> float | None:
        """Begins a pause, or prolongs the present one; the length if it is news."""
        if self._trouble_since_s is None:
            self._trouble_since_s = now
        elif state.send_number <= self._episode_sends and self._probe is not state:
            return self._prolong(failure, now)
        if self._probe is state:
            self._refused_probe = state
        self._probe = None
        self.throttled = failure.kind is FailureKind.THROTTLED
        self.probing = True
        self.why = failure.message
        self._episode_sends = self._sends
        wait_s = self._wait_s(failure)
        if wait_s > self._max_outage_s:
            self.disable(StopReason.OUTAGE, f"asked to wait {wait_s:.0f} s, longer than max_outage_s; {self._cause()}")
        self.until_s = now + wait_s
        self._waits += 1
        return wait_s

    def _cause(self) -> str:
        return f"{THROTTLED}: {self.why}" if self.throttled else str(self.why)

    def _prolong(self, failure: Failure, now: float) -> float | None:
        asked_s = failure.retry_after_s or 0.0
        if asked_s > self._max_outage_s:
            self.disable(
                StopReason.OUTAGE, f"asked to wait {asked_s:.0f} s, longer than max_outage_s; {failure.message}"
            )
        if now + asked_s > self.until_s and self._probe is None:
            self.until_s = now + asked_s
            return asked_s
        return None

    def _wait_s(self, failure: Failure) -> float:
        jitter = self._random()
        if failure.retry_after_s is not None and failure.retry_after_s > 0:
            return failure.retry_after_s + 0.05 * jitter
        if self._key_refusals:
            return FIRST_KEY_PROBE_S * 2.0 ** (self._key_refusals - 1) * (0.75 + 0.25 * jitter)
        if self.throttled:
            return min(LONGEST_THROTTLE_S, FIRST_THROTTLE_S * 2.0**self._waits) * (0.1 + 0.9 * jitter)
        return min(LONGEST_PROBE_S, FIRST_PROBE_S * 2.0**self._waits) * (0.75 + 0.25 * jitter)

    def _probe_over(self, state: RowState) -> None:
        if self._probe is state:
            self._probe = None

    def _close(self, state: RowState) -> None:
        """The lane works again; a refused probe was itself the trouble if the next probe is what closes the breaker."""
        if self._probe is state and self._refused_probe not in (None, state) and self.throttled:
            assert self._refused_probe is not None
            trouble_of(self._refused_probe).is_suspect = True
        self._probe = self._refused_probe = None
        self.probing = self.throttled = False
        self.why = None
        self._waits = 0
        self._trouble_since_s = None


def _is_suspect(state: RowState) -> bool:
    return state.trouble is not None and state.trouble.is_suspect
