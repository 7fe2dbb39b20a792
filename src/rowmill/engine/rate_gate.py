"""What a rendered request waits for before it is sent: its quota's rates, in order of arrival.

The arithmetic is `core.limits.rate`'s; here is the waiting.  It must not know of breakers, slots or retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rowmill.core.limits.rate import Limits, RateLimiter, Reservation
from rowmill.core.limits.ratelimit_headers import Announcements, announce_nothing
from rowmill.core.limits.token_estimate import TokenEstimate
from rowmill.core.replies.steps import RowState
from rowmill.core.requests.max_tokens import max_tokens_of
from rowmill.ports import Clock
from rowmill.records import Request, Usage

# Where no limit is known, only some requests are estimated, so that the estimate is ready when one turns up.
ESTIMATED_SENDS = 256
ESTIMATED_EVERY = 16


class RateGate:
    """One lane's way into its quota; the limiter is shared by all lanes that spend the same one.

    `stated` are the user's limits; what they leave open is filled from the headers of replies.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        clock: Clock,
        *,
        stated: Limits | None = None,
        estimate: TokenEstimate | None = None,
        dialect: str | None = None,
    ) -> None:
        self._limiter = limiter
        self._clock = clock
        self._stated = stated or Limits()
        self._estimate = estimate or TokenEstimate()
        self._announcements = Announcements(dialect)
        self._turn = asyncio.Lock()
        self._nap: asyncio.Future[None] | None = None
        self._until_s: float | None = None
        self._sends = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether a request waits for room in the quota."""
        return self._turn.locked()

    def reserve_now(self, state: RowState) -> bool:
        """Reserves where the quota has room and nobody waits for it."""
        limiter = self._limiter
        if limiter.is_unlimited:
            self._sends += 1
            if state.need is None and (self._sends <= ESTIMATED_SENDS or self._sends % ESTIMATED_EVERY == 0):
                self._weigh(state)
            state.held = limiter.count(self._clock.now(), state.need)
            return True
        if state.need is None:
            self._weigh(state)
        return not self._turn.locked() and self._try(state) is None

    async def reserve(self, state: RowState, may_go: Callable[[], bool]) -> bool:
        """Waits until the quota has room; false as soon as `may_go` turns false, with nothing held."""
        if self.reserve_now(state):
            return True
        async with self._turn:
            while may_go():
                wait_s = self._try(state)
                if wait_s is None:
                    return True
                await self._sleep(wait_s)
        return False

    def disturb(self) -> None:
        """Wakes the requests that wait, so that each looks again whether it may go."""
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    def adopt_limits(self, headers: Mapping[str, str]) -> None:
        """A reply came: adopts the limits that its headers announce, where the user stated none."""
        if announce_nothing(headers):
            return
        announced = self._announcements.changed(headers, self._clock.wall())
        if announced is not None:
            self._limiter.set_limits(self._stated.or_else(announced), self._clock.now())

    def used(self, state: RowState, usage: Usage) -> None:
        """The request's usage is known, as far as the reply says."""
        if state.need is not None:
            self._estimate.observe(state.request_bytes, usage.input_tokens, usage.output_tokens)
        self._settle(state, usage.input_tokens, usage.output_tokens)

    def kept(self, state: RowState) -> None:
        """The request was taken and its usage stays unknown: it stands at what was reserved."""
        self._settle(state, None, None)

    def refused(self, state: RowState) -> None:
        """The server refused the request for its rate."""
        if state.held is not None:
            self._limiter.throttled(state.held, self._clock.now())
            state.held = None

    def unsent(self, state: RowState) -> None:
        """Nothing was sent."""
        if state.held is not None:
            self._limiter.give_back(state.held, self._clock.now())
            state.held = None

    def why(self) -> str | None:
        """What requests wait for here, in words; None while none does.  Safe from any thread."""
        until_s = self._until_s
        if until_s is None:
            return None
        limits = self._limiter.limits
        stated = [
            f"{limit:,.0f} {name}"
            for limit, name in (
                (limits.requests_per_min, "requests"),
                (limits.tokens_per_min, "tokens"),
                (limits.input_tokens_per_min, "input tokens"),
                (limits.output_tokens_per_min, "output tokens"),
            )
            if limit
        ]
        return f"rate limit ({' and '.join(stated)} a minute)" if stated else "rate limit (learned from refusals)"

    def _weigh(self, state: RowState) -> None:
        assert state.request is not None
        state.request_bytes = request_bytes(state.request)
        limit = self._limiter.limits.tokens_per_min
        state.need = self._estimate.need(state.request_bytes, request_max_tokens(state.request), limit)

    def _try(self, state: RowState) -> float | None:
        assert state.need is not None
        got = self._limiter.try_reserve(state.need, self._clock.now())
        if isinstance(got, Reservation):
            state.held = got
            self._until_s = None
            return None
        return got

    async def _sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._nap = loop.create_future()
        self._until_s = self._clock.now() + seconds
        timer = loop.call_later(seconds, self.disturb)
        try:
            await self._nap
        finally:
            timer.cancel()
            self._nap = None
            self._until_s = None

    def _settle(self, state: RowState, input_tokens: int | None, output_tokens: int | None) -> None:
        if state.held is not None:
            counted = None if self._estimate.counts_max_tokens else output_tokens
            self._limiter.settle(state.held, input_tokens, counted, self._clock.now())
            state.held = None


def request_bytes(request: Request) -> int:
    """Bytes of the messages' text in UTF-8, or of the body."""
    if request.body is not None:
        return len(request.body.content)
    total = 0
    for message in request.messages:
        text = message.content
        total += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return total


def request_max_tokens(request: Request) -> int | None:
    """The most tokens that the request lets the model answer with, where it says."""
    if request.body is not None:
        return request.body.max_tokens
    return max_tokens_of(request.params)
