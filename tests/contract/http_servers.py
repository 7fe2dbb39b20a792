"""Scripted servers for the transports' tests: each request read is a `Talk` that an answer deals with."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import ssl

Answer: TypeAlias = "Callable[[Talk], Awaitable[None]]"


class Talk:
    """One request that a server has read: what it holds, and the means to answer it."""

    def __init__(
        self,
        number: int,
        connection: int,
        of_connection: int,
        head: bytes,
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number = number
        self.connection = connection
        self.of_connection = of_connection
        self.head = head
        self.body = body
        self.writer = writer

    async def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()

    async def reset(self) -> None:
        connected = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Server:
    """Reads requests and lets `answer` deal with each."""

    def __init__(self, answer: Answer) -> None:
        self.talks: list[Talk] = []
        self.connections = 0
        self.answer = answer
        self.scheme = "http"
        self.port = 0
        self.open_now = 0
        self._changed = asyncio.Event()

    def url(self, path: str = "/") -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def _count(self, change: int) -> None:
        self.open_now += change
        self._changed.set()

    async def until_open(self, connections: int) -> None:
        """Returns when that many connections are open."""
        async with asyncio.timeout(20):
            while self.open_now != connections:
                self._changed.clear()
                await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._count(1)
        connection, of_connection = self.connections, 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                of_connection += 1
                talk = Talk(len(self.talks) + 1, connection, of_connection, head, body, writer)
                self.talks.append(talk)
                await self.answer(talk)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._count(-1)
            writer.close()


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls, backlog=4096)
    server.scheme = "https" if tls else "http"
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def pause() -> None:
    """What passes between two pieces of a reply, so that the client reads them one by one."""
    await asyncio.sleep(0.02)


def replies(*pieces: bytes, then: str = "keep") -> Answer:
    async def answer(talk: Talk) -> None:
        await talk.write(*pieces)
        if then == "close":
            await talk.close()
        elif then == "reset":
            await pause()  # lets the bytes go before the reset overtakes them
            await talk.reset()

    return answer


async def hang(talk: Talk) -> None:
    await asyncio.Event().wait()


async def ignore(talk: Talk) -> None:
    """Reads on without an answer, and so notices when the client goes."""


async def echo(talk: Talk) -> None:
    await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(talk.body), talk.body)
