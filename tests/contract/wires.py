"""A transport under test, how it talks, and the loop that it runs on."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from tests.contract.http_servers import Answer, Server, serving

from rowmill.ports import Transport
from rowmill.records import Failure, RawReply

T = TypeVar("T")

HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-secret"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Odd-Case: 1\r\n\r\nok"


class Certificate(NamedTuple):
    path: Path
    context: ssl.SSLContext


@dataclass(frozen=True)
class Wire:
    """A transport, how it talks (plain where `certificate` is None), and the loop that both ends run on."""

    maker: Callable[..., Transport]
    certificate: Certificate | None
    new_loop: Callable[[], asyncio.AbstractEventLoop]

    def transport(self, **settings: object) -> Transport:
        """Without anything from the environment, and trusting the server, unless `settings` say else."""
        ca_file = None if self.certificate is None else str(self.certificate.path)
        return self.maker(**{"environment": {}, "ca_file": ca_file, **settings})

    def serving(self, answer: Answer) -> AbstractAsyncContextManager[Server]:
        return serving(answer, self.certificate and self.certificate.context)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            return runner.run(work)


def one(
    wire: Wire,
    answer: Answer,
    *,
    timeout_s: float = 5.0,
    body: bytes = b"{}",
    path: str = "/v1/chat/completions",
    **settings: object,
) -> RawReply | Failure:
    async def run() -> RawReply | Failure:
        transport = wire.transport(**settings)
        async with wire.serving(answer) as server:
            try:
                return await transport.send(server.url(path), HEADERS, body, timeout_s)
            finally:
                await transport.close()

    return wire.run(run())


def allow_descriptors(wanted: int) -> None:
    """Raises the soft limit on open files; skips the test where the hard one is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine allows {hard} open files only")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
