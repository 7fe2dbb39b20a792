"""Heads of replies by their bytes: one that came before need not be parsed again; must not know of connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowmill.records import RawReply

HEAD_END = b"\r\n\r\n"
MOST_HEADS = 1000


class KnownHead(NamedTuple):
    """What the parser made of a head: see `records.RawReply`; so many bytes of body belong to it and nothing more."""

    status: int
    headers: Mapping[str, str]
    body_bytes: int


class KnownHeads(dict[bytes, KnownHead]):
    """A head with the empty line at its end -> what it says.  Only what leaves the connection open is in it.

    A server of one's own (vLLM, llama.cpp, nginx) sends the same head with every reply of one length within a second.
    One that numbers its replies never does; where that shows, nothing is kept any more and `learn` does nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hits = 0
        self._is_useless = False

    def learn(self, data: bytes, reply: RawReply) -> None:
        """Keeps the head of a whole reply, as it came in one piece and as it was read."""
        if self._is_useless:
            return
        end = data.find(HEAD_END) + len(HEAD_END)
        if len(data) - end != len(reply.body):  # chunked, or not the only head
            return
        if len(self) >= MOST_HEADS:
            self._is_useless = self.hits < MOST_HEADS
            self.hits = 0
            self.clear()
            if self._is_useless:
                return
        self[data[:end]] = KnownHead(reply.status, reply.headers, len(reply.body))
