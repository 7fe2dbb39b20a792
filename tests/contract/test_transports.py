"""What every transport makes of replies and of the lack of them, whole and broken, plain and over TLS."""

from __future__ import annotations

import gzip
import socket

import pytest
from tests.contract.http_servers import Answer, Talk, echo, hang, pause, replies
from tests.contract.wires import HEADERS, OK, Wire, one

from rowmill.errors import FailureKind
from rowmill.records import Failure, RawReply


def test_a_request_arrives_whole_and_its_reply_comes_back(wire: Wire) -> None:
    async def run() -> tuple[RawReply | Failure, Talk]:
        transport = wire.transport()
        async with wire.serving(replies(OK)) as server:
            url = server.url("/v1/x?api-version=2")
            reply = await transport.send(url, HEADERS, b'{"a":1}', 5.0)
            await transport.close()
            return reply, server.talks[0]

    reply, talk = wire.run(run())
    assert isinstance(reply, RawReply)
    assert (reply.status, reply.body) == (200, b"ok")
    assert reply.headers["x-odd-case"] == "1"
    assert reply.latency_s > 0
    assert talk.head.startswith(b"POST /v1/x?api-version=2 HTTP/1.1\r\n")
    assert b"authorization: bearer sk-secret\r\n" in talk.head.lower()
    assert talk.body == b'{"a":1}'


BOMB = gzip.compress(b"x" * 100_000)


@pytest.mark.parametrize(
    ("pieces", "then", "status", "body"),
    [
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"],
            "keep",
            200,
            b"abc",
        ),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"], "close", 200, b"ok"),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end"], "close", 200, b"to the end"),
        ([b"HTTP/1.0 200 OK\r\n\r\nold"], "close", 200, b"old"),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK], "keep", 200, b"ok"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", OK], "keep", 200, b"ok"),
        ([b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 3\r\n\r\n"], "keep", 503, b""),
        ([b"HTTP/1.1 302 Found\r\nLocation: /else\r\nContent-Length: 0\r\n\r\n"], "keep", 302, b""),
        ([b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: 2\r\n\r\nok"], "keep", 200, b"ok"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "keep", 204, b""),
    ],
)
def test_every_shape_of_a_whole_reply_is_read(
    wire: Wire, pieces: list[bytes], then: str, status: int, body: bytes
) -> None:
    reply = one(wire, replies(*pieces, then=then))
    assert isinstance(reply, RawReply)
    assert (reply.status, reply.body) == (status, body)


def test_a_large_body_goes_both_ways(wire: Wire) -> None:
    body = bytes(range(256)) * 16_000
    reply = one(wire, echo, body=body)
    assert isinstance(reply, RawReply)
    assert reply.body == body


def test_a_compressed_reply_is_unpacked(wire: Wire) -> None:
    packed = gzip.compress(b'{"a":1}' * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    reply = one(wire, replies(head, packed))
    assert isinstance(reply, RawReply)
    assert reply.body == b'{"a":1}' * 100


@pytest.mark.parametrize(
    ("pieces", "then", "kind"),
    [
        ([], "close", FailureKind.RESET),
        ([], "reset", FailureKind.RESET),
        ([b"HTTP/1.1 200 OK\r\nContent-Le"], "close", FailureKind.RESET),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"], "close", FailureKind.UNREADABLE),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"], "reset", FailureKind.UNREADABLE),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"], "close", FailureKind.UNREADABLE),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "close", FailureKind.UNREADABLE),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\nok"], "close", FailureKind.UNREADABLE),
        (
            [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"],
            "keep",
            FailureKind.UNREADABLE,
        ),
        ([b"\x16\x03\x01garbage\r\n\r\n"], "close", FailureKind.UNREADABLE),
        ([b"220 mail.example ESMTP\r\n"], "close", FailureKind.UNREADABLE),
    ],
)
def test_every_broken_reply_is_a_failure(wire: Wire, pieces: list[bytes], then: str, kind: FailureKind) -> None:
    found = one(wire, replies(*pieces, then=then))
    assert isinstance(found, Failure)
    assert found.kind is kind, found.message


@pytest.mark.parametrize(
    "answer",
    [hang, replies(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), replies(b"HTTP/1.1 200 OK\r\n")],
    ids=["no byte", "half a body", "half a head"],
)
def test_the_deadline_covers_the_whole_reply(wire: Wire, answer: Answer) -> None:
    found = one(wire, answer, timeout_s=0.1)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMEOUT
    assert "within 0.1 s" in found.message


def test_a_dripping_reply_does_not_outlive_the_deadline(wire: Wire) -> None:
    async def drip(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            await talk.write(b".")
            await pause()

    found = one(wire, drip, timeout_s=0.2)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * 0x100000],
        [
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB),
            BOMB,
        ],
    ],
    ids=["announced", "chunked", "packed"],
)
def test_a_reply_above_the_cap_is_not_read(wire: Wire, pieces: list[bytes]) -> None:
    found = one(wire, replies(*pieces), max_reply_bytes=1000)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREADABLE
    assert "larger than" in found.message


def test_a_refused_connection_is_unreachable_and_names_only_the_origin(wire: Wire) -> None:
    async def run() -> Failure | RawReply:
        transport = wire.transport()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        found = await transport.send(f"http://user:pw@127.0.0.1:{port}/v1?key=secret", HEADERS, b"{}", 5.0)
        await transport.close()
        assert isinstance(found, Failure)
        assert f"127.0.0.1:{port}" in found.message
        return found

    found = wire.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE
    assert not any(word in found.message for word in ("secret", "pw", "/v1", "sk-"))


@pytest.mark.parametrize("answer", [hang, replies(then="reset"), replies(b"nonsense\r\n", then="close")])
def test_no_failure_shows_the_query_or_the_headers(wire: Wire, answer: Answer) -> None:
    found = one(wire, answer, timeout_s=0.1, path="/v1?key=secret")
    assert isinstance(found, Failure)
    assert not any(word in found.message + found.excerpt for word in ("secret", "/v1", "sk-"))


def test_an_unknown_host_is_unreachable(wire: Wire) -> None:
    async def run() -> Failure | RawReply:
        transport = wire.transport()
        found = await transport.send("http://nowhere.invalid/v1", HEADERS, b"{}", 5.0)
        await transport.close()
        return found

    found = wire.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE


def test_a_connection_that_does_not_come_about_is_unreachable(wire: Wire) -> None:
    async def run() -> Failure | RawReply:
        transport = wire.transport(connect_timeout_s=0.1)
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            waiting = [socket.socket() for _ in range(4)]
            for one_more in waiting:
                one_more.setblocking(False)
                one_more.connect_ex(full.getsockname())
            found = await transport.send(f"http://127.0.0.1:{full.getsockname()[1]}/", HEADERS, b"{}", 30.0)
            for one_more in waiting:
                one_more.close()
        await transport.close()
        return found

    found = wire.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE
    assert "within 0.1 s" in found.message
