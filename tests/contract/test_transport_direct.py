"""What the direct transport promises besides: it leaves nothing behind, and its pool keeps to its limits."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.contract.http_servers import Talk, echo, ignore, replies
from tests.contract.wires import HEADERS, OK, Wire

from rowmill.errors import FailureKind
from rowmill.records import Failure, RawReply


def test_cancelled_requests_leave_no_socket_no_task_and_no_complaint(direct: Wire) -> None:
    async def run() -> tuple[int, list[dict[str, Any]]]:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        transport = direct.transport()
        async with direct.serving(ignore) as server:
            sent = [asyncio.create_task(transport.send(server.url(), HEADERS, b"{}", 30.0)) for _ in range(20)]
            await server.until_open(20)
            for task in sent:
                task.cancel()
            ends = await asyncio.gather(*sent, return_exceptions=True)
            await server.until_open(0)
            await transport.close()
            gc.collect()
            return sum(isinstance(end, asyncio.CancelledError) for end in ends), complaints

    cancelled, complaints = direct.run(run())
    assert cancelled == 20
    assert complaints == []


def test_requests_cancelled_before_they_have_a_connection_are_never_sent(direct: Wire) -> None:
    async def run() -> tuple[RawReply | Failure, int]:
        transport = direct.transport(max_connections=1)
        async with direct.serving(echo) as server:
            sent = [asyncio.create_task(transport.send(server.url(), HEADERS, b"no", 30.0)) for _ in range(20)]
            await asyncio.sleep(0)
            for task in sent:
                task.cancel()
            await asyncio.gather(*sent, return_exceptions=True)
            reply = await transport.send(server.url(), HEADERS, b"yes", 5.0)
            await transport.close()
            return reply, len(server.talks)

    reply, requests = direct.run(run())
    assert isinstance(reply, RawReply)
    assert reply.body == b"yes"
    assert requests == 1


def test_closing_ends_what_is_in_flight_and_every_connection(direct: Wire) -> None:
    async def run() -> list[RawReply | Failure]:
        transport = direct.transport()
        async with direct.serving(ignore) as server:
            sent = [asyncio.create_task(transport.send(server.url(), HEADERS, b"{}", 30.0)) for _ in range(5)]
            await server.until_open(5)
            await transport.close()
            await server.until_open(0)
            late = await transport.send(server.url(), HEADERS, b"{}", 30.0)
            return [late, *[await task for task in sent]]

    late, *ends = direct.run(run())
    assert isinstance(late, Failure)
    assert late.kind is FailureKind.UNREACHABLE
    assert {end.kind for end in ends if isinstance(end, Failure)} == {FailureKind.RESET}


def test_idle_connections_are_closed_after_a_while(direct: Wire) -> None:
    async def run() -> None:
        transport = direct.transport(idle_s=0.01)
        async with direct.serving(replies(OK)) as server:
            await transport.send(server.url(), HEADERS, b"{}", 5.0)
            await server.until_open(0)
            await transport.close()

    direct.run(run())


def test_the_connection_limit_is_never_exceeded(direct: Wire) -> None:
    most = 0

    async def run() -> list[RawReply | Failure]:
        transport = direct.transport(max_connections=3)
        async with direct.serving(replies(OK)) as server:

            async def answer(talk: Talk) -> None:
                nonlocal most
                most = max(most, server.open_now)
                await asyncio.sleep(0)
                await talk.write(OK)

            server.answer = answer
            got = await asyncio.gather(*[transport.send(server.url(), HEADERS, b"{}", 10.0) for _ in range(50)])
            await transport.close()
            return got

    got = direct.run(run())
    assert all(isinstance(reply, RawReply) for reply in got)
    assert most == 3


def test_the_connection_freed_last_is_used_first(direct: Wire) -> None:
    async def run() -> list[int]:
        transport = direct.transport()
        async with direct.serving(echo) as server:
            await asyncio.gather(*[transport.send(server.url(), HEADERS, b"{}", 5.0) for _ in range(3)])
            for _ in range(4):
                await transport.send(server.url(), HEADERS, b"{}", 5.0)
            await transport.close()
            return [talk.of_connection for talk in server.talks]

    assert direct.run(run())[-4:] == [2, 3, 4, 5]


def test_when_all_kept_connections_are_stale_every_request_still_arrives(direct: Wire) -> None:
    all_there = asyncio.Event()

    async def lose_the_first_ten(talk: Talk) -> None:
        if talk.connection <= 10 and talk.of_connection == 2:
            return await talk.reset()
        if talk.number == 10:
            all_there.set()
        await all_there.wait()
        return await echo(talk)

    async def run() -> list[RawReply | Failure]:
        transport = direct.transport(max_connections=10)
        async with direct.serving(lose_the_first_ten) as server:
            for _ in range(2):
                sent = [transport.send(server.url(), HEADERS, b"{}", 5.0) for _ in range(10)]
                got = await asyncio.gather(*sent)
            await transport.close()
            assert len(server.talks) == 30
            return got

    assert all(isinstance(reply, RawReply) for reply in direct.run(run()))


def test_a_server_that_closes_every_kept_connection_loses_no_request(direct: Wire) -> None:
    async def answer_once(talk: Talk) -> None:
        await (talk.close() if talk.of_connection == 2 else echo(talk))

    async def run() -> list[RawReply | Failure]:
        transport = direct.transport(max_connections=8)
        async with direct.serving(answer_once) as server:
            sent = [transport.send(server.url(), HEADERS, b"{}", 20.0) for _ in range(300)]
            got = await asyncio.gather(*sent)
            await transport.close()
            return got

    assert all(isinstance(reply, RawReply) for reply in direct.run(run()))


def test_a_full_queue_ends_unsent_at_its_deadline(direct: Wire) -> None:
    async def run() -> list[RawReply | Failure]:
        transport = direct.transport(max_connections=1)
        async with direct.serving(ignore) as server:
            first = asyncio.create_task(transport.send(server.url(), HEADERS, b"{}", 30.0))
            await server.until_open(1)
            late = await transport.send(server.url(), HEADERS, b"{}", 0.05)
            await transport.close()
            return [late, await first]

    late, _ = direct.run(run())
    assert isinstance(late, Failure)
    assert late.kind is FailureKind.UNREACHABLE
    assert "within 0.05 s" in late.message


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://127.0.0.1/", {}),
        ("http://", {}),
        ("http://127.0.0.1:99999/", {}),
        ("http://[::1/", {}),
        ("http://127.0.0.1:9/", {"x-key": "sk-secret\r\nx: y"}),
        ("http://127.0.0.1:9/", {"bad name": "sk-secret"}),
        ("http://" + "a" * 70 + ".invalid/", {}),
    ],
)
def test_what_cannot_be_sent_is_unreachable_and_shows_no_value(direct: Wire, url: str, headers: dict[str, str]) -> None:
    async def run() -> RawReply | Failure:
        transport = direct.transport()
        found = await transport.send(url, headers, b"{}", 5.0)
        await transport.close()
        return found

    found = direct.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE
    assert "secret" not in found.message


def test_a_name_with_several_addresses_is_tried_until_one_answers(direct: Wire) -> None:
    async def run() -> RawReply | Failure:
        transport = direct.transport()
        async with direct.serving(replies(OK)) as server:
            # On most machines this is ::1, where nobody listens, and then 127.0.0.1.
            reply = await transport.send(server.url().replace("127.0.0.1", "localhost"), HEADERS, b"{}", 5.0)
            await transport.close()
            return reply

    assert isinstance(direct.run(run()), RawReply)


def test_a_login_in_the_address_is_sent_as_a_header(direct: Wire) -> None:
    async def run() -> bytes:
        transport = direct.transport()
        async with direct.serving(replies(OK)) as server:
            await transport.send(server.url("/v1?q=é").replace("://", "://me:p%40ss@"), {}, b"{}", 5.0)
            await transport.close()
            return server.talks[0].head

    head = direct.run(run())
    assert head.startswith(b"POST /v1?q=%C3%A9 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"authorization: Basic bWU6cEBzcw==\r\n" in head
