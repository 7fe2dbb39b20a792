"""One request from `send` to its end, whatever that is; must not know of sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from rowmill.core.replies import failures

if TYPE_CHECKING:
    import asyncio

    from rowmill.records import Failure, RawReply


class Carrier(Protocol):
    """The connection that an exchange is on."""

    def drop(self, exchange: Exchange, found: Failure | None) -> None:
        """Closes the connection if it still carries `exchange`, which ends with `found` (None: nobody listens)."""


class Exchange(msgspec.Struct, eq=False):
    """A request, where it is, and the future of its reply; `deadline_s` is on `perf_counter`'s clock.

    `stale_tries` counts the kept connections that were gone when it was sent on them.
    Invariant: it is either queued (`carrier` None), on one connection, or over (`future` done).
    """

    head: bytes
    body: bytes
    origin: str
    timeout_s: float
    deadline_s: float
    future: asyncio.Future[RawReply | Failure]
    carrier: Carrier | None = None
    stale_tries: int = 0

    def expire(self) -> None:
        """The deadline has passed."""
        if self.carrier is not None:
            self.carrier.drop(self, failures.timed_out(self.origin, self.timeout_s))
        elif not self.future.done():
            why = f"no connection within {self.timeout_s:g} s"
            self.future.set_result(failures.unreachable(self.origin, why))

    def abandon(self) -> None:
        """Nobody waits for the reply any more."""
        self.future.cancel()
        if self.carrier is not None:
            self.carrier.drop(self, None)
