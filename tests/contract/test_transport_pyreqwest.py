"""What the library's transport does besides: proxies, and its library's exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from pyreqwest import exceptions
from tests.contract.http_servers import Server, replies, serving
from tests.contract.wires import HEADERS, OK

from rowmill.io.http import pyreqwest_
from rowmill.io.http.pyreqwest_ import PyreqwestTransport
from rowmill.records import Failure, RawReply


def test_a_proxy_from_the_environment_is_used_but_never_for_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[Server, list[RawReply | Failure]]:
        async with serving(replies(OK)) as proxy, serving(replies(OK)) as server:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            transport = PyreqwestTransport(environment={})
            got = [
                await transport.send(url, HEADERS, b"{}", 5.0) for url in ("http://far.invalid/v1", server.url("/v1"))
            ]
            await transport.close()
            return proxy, got

    proxy, got = asyncio.run(run())
    assert all(isinstance(reply, RawReply) for reply in got)
    assert [talk.head.split(b"\r\n")[0] for talk in proxy.talks] == [b"POST http://far.invalid/v1 HTTP/1.1"]


def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[int, RawReply | Failure]:
        async with serving(replies(OK)) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("NO_PROXY", "far.invalid")
            transport = PyreqwestTransport(environment={})
            found = await transport.send("http://far.invalid/v1", HEADERS, b"{}", 5.0)
            await transport.close()
            return len(proxy.talks), found

    requests, found = asyncio.run(run())
    assert requests == 0
    assert isinstance(found, Failure)


def every_kind(base: type[Exception]) -> Iterator[type[Exception]]:
    yield base
    for kind in base.__subclasses__():
        yield from every_kind(kind)


@pytest.mark.parametrize("kind", sorted(set(every_kind(exceptions.PyreqwestError)), key=str))
def test_every_exception_of_pyreqwest_is_mapped(kind: type[Exception]) -> None:
    assert kind in pyreqwest_._MAP
