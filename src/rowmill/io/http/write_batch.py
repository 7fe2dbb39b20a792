"""Sends what one turn of the loop has to send in one go; must not know what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Sender(Protocol):
    """A connection with a request on it that has not left yet."""

    def flush(self) -> None:
        """Sends it, unless it is no longer wanted.  Must not raise."""


class WriteBatch:
    """Connections that have a request to send: all are flushed at the next turn of the loop, one right after the other.

    One by one, with work between them, each send would wake the server up, which costs as much as the send itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._senders: list[Sender] = []

    def put(self, sender: Sender) -> None:
        """`sender.flush` is called soon."""
        senders = self._senders
        if not senders:
            self._loop.call_soon(self._flush)
        senders.append(sender)

    def _flush(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            sender.flush()
