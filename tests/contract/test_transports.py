"""What every transport must do, over plain HTTP and TLS, with servers that behave and that do not."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from pyreqwest import exceptions

from rowmill.errors import FailureKind, JobError
from rowmill.records import Failure, RawReply
from rowmill.transport import pyreqwest_
from rowmill.transport.pyreqwest_ import PyreqwestTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

MAKERS: dict[str, Callable[..., PyreqwestTransport]] = {"pyreqwest": PyreqwestTransport}
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-secret"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Odd-Case: 1\r\n\r\nok"


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., PyreqwestTransport]:
    maker = MAKERS[request.param]
    return lambda **settings: maker(**{"environment": {}, **settings})


class Talk:
    """One request that a server has read: what it holds, and the means to answer it."""

    def __init__(self, number: int, of_connection: int, head: bytes, body: bytes, server: Server) -> None:
        self.number = number
        self.of_connection = of_connection
        self.head = head
        self.body = body
        self.server = server

    async def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.server.writer.write(piece)
            await self.server.writer.drain()

    async def close(self) -> None:
        self.server.writer.close()

    async def reset(self) -> None:
        connected = self.server.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.writer.transport.abort()


class Server:
    """Reads requests and lets `answer` deal with each."""

    def __init__(self, answer: Callable[[Talk], Awaitable[None]]) -> None:
        self.talks: list[Talk] = []
        self.connections = 0
        self._answer = answer
        self.writer: asyncio.StreamWriter
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer = writer
        of_connection = 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                of_connection += 1
                talk = Talk(len(self.talks) + 1, of_connection, head, body, self)
                self.talks.append(talk)
                await self._answer(talk)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    answer: Callable[[Talk], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def replies(*pieces: bytes, then: str = "keep") -> Callable[[Talk], Awaitable[None]]:
    async def answer(talk: Talk) -> None:
        await talk.write(*pieces)
        if then == "close":
            await talk.close()
        elif then == "reset":
            await asyncio.sleep(0.02)  # lets the bytes go before the reset overtakes them
            await talk.reset()

    return answer


async def hang(talk: Talk) -> None:
    await asyncio.Event().wait()


def one(
    make: Callable[..., PyreqwestTransport],
    answer: Callable[[Talk], Awaitable[None]],
    *,
    timeout_s: float = 5.0,
    body: bytes = b"{}",
    path: str = "/v1/chat/completions",
    **settings: object,
) -> RawReply | Failure:
    async def run() -> RawReply | Failure:
        transport = make(**settings)
        async with serving(answer) as server:
            try:
                return await transport.send(f"http://127.0.0.1:{server.port}{path}", HEADERS, body, timeout_s)
            finally:
                await transport.close()

    return asyncio.run(run())


def test_a_request_arrives_whole_and_its_reply_comes_back(make: Callable[..., PyreqwestTransport]) -> None:
    async def run() -> tuple[RawReply | Failure, Talk]:
        transport = make()
        async with serving(replies(OK)) as server:
            url = f"http://127.0.0.1:{server.port}/v1/x?api-version=2"
            reply = await transport.send(url, HEADERS, b'{"a":1}', 5.0)
            await transport.close()
            return reply, server.talks[0]

    reply, talk = asyncio.run(run())
    assert isinstance(reply, RawReply)
    assert (reply.status, reply.body) == (200, b"ok")
    assert reply.headers["x-odd-case"] == "1"
    assert reply.latency_s > 0
    assert talk.head.startswith(b"POST /v1/x?api-version=2 HTTP/1.1\r\n")
    assert b"authorization: bearer sk-secret\r\n" in talk.head.lower()
    assert talk.body == b'{"a":1}'


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
    make: Callable[..., PyreqwestTransport], pieces: list[bytes], then: str, status: int, body: bytes
) -> None:
    reply = one(make, replies(*pieces, then=then))
    assert isinstance(reply, RawReply)
    assert (reply.status, reply.body) == (status, body)


def test_a_large_body_goes_both_ways(make: Callable[..., PyreqwestTransport]) -> None:
    async def echo(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(talk.body), talk.body)

    body = bytes(range(256)) * 16_000
    reply = one(make, echo, body=body)
    assert isinstance(reply, RawReply)
    assert reply.body == body


def test_a_compressed_reply_is_unpacked(make: Callable[..., PyreqwestTransport]) -> None:
    packed = gzip.compress(b'{"a":1}' * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    reply = one(make, replies(head, packed))
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
def test_every_broken_reply_is_a_failure(
    make: Callable[..., PyreqwestTransport], pieces: list[bytes], then: str, kind: FailureKind
) -> None:
    found = one(make, replies(*pieces, then=then))
    assert isinstance(found, Failure)
    assert found.kind is kind, found.message


@pytest.mark.parametrize(
    "answer",
    [hang, replies(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), replies(b"HTTP/1.1 200 OK\r\n")],
    ids=["no byte", "half a body", "half a head"],
)
def test_the_deadline_covers_the_whole_reply(
    make: Callable[..., PyreqwestTransport], answer: Callable[[Talk], Awaitable[None]]
) -> None:
    found = one(make, answer, timeout_s=0.1)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMEOUT
    assert "within 0.1 s" in found.message


def test_a_dripping_reply_does_not_outlive_the_deadline(make: Callable[..., PyreqwestTransport]) -> None:
    async def drip(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            await talk.write(b".")
            await asyncio.sleep(0.01)

    found = one(make, drip, timeout_s=0.2)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * 0x100000],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 100_000)],
    ],
    ids=["announced", "chunked", "packed"],
)
def test_a_reply_above_the_cap_is_not_read(make: Callable[..., PyreqwestTransport], pieces: list[bytes]) -> None:
    found = one(make, replies(*pieces), max_reply_bytes=1000)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREADABLE
    assert "larger than" in found.message


def test_a_refused_connection_is_unreachable_and_names_only_the_place(
    make: Callable[..., PyreqwestTransport],
) -> None:
    async def run() -> Failure | RawReply:
        transport = make()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        found = await transport.send(f"http://user:pw@127.0.0.1:{port}/v1?key=secret", HEADERS, b"{}", 5.0)
        await transport.close()
        assert isinstance(found, Failure)
        assert f"127.0.0.1:{port}" in found.message
        return found

    found = asyncio.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE
    assert not any(word in found.message for word in ("secret", "pw", "/v1", "sk-"))


@pytest.mark.parametrize("answer", [hang, replies(then="reset"), replies(b"nonsense\r\n", then="close")])
def test_no_failure_shows_the_query_or_the_headers(
    make: Callable[..., PyreqwestTransport], answer: Callable[[Talk], Awaitable[None]]
) -> None:
    found = one(make, answer, timeout_s=0.1, path="/v1?key=secret")
    assert isinstance(found, Failure)
    assert not any(word in found.message + found.excerpt for word in ("secret", "/v1", "sk-"))


def test_an_unknown_host_is_unreachable(make: Callable[..., PyreqwestTransport]) -> None:
    async def run() -> Failure | RawReply:
        transport = make()
        found = await transport.send("http://nowhere.invalid/v1", HEADERS, b"{}", 5.0)
        await transport.close()
        return found

    found = asyncio.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE


def test_a_connection_that_does_not_come_about_is_unreachable(
    make: Callable[..., PyreqwestTransport],
) -> None:
    async def run() -> Failure | RawReply:
        transport = make(connect_timeout_s=0.1)
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

    found = asyncio.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE
    assert "within 0.1 s" in found.message


def test_connections_are_reused(make: Callable[..., PyreqwestTransport]) -> None:
    async def run() -> int:
        transport = make()
        async with serving(replies(OK)) as server:
            for _ in range(5):
                await transport.send(f"http://127.0.0.1:{server.port}/", HEADERS, b"{}", 5.0)
            await transport.close()
            return server.connections

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_stale_connection_is_replaced_silently(make: Callable[..., PyreqwestTransport], how: str) -> None:
    async def lose_the_second(talk: Talk) -> None:
        await (getattr(talk, how)() if talk.of_connection == 2 else talk.write(OK))

    async def run() -> tuple[list[RawReply | Failure], int]:
        transport = make()
        async with serving(lose_the_second) as server:
            url = f"http://127.0.0.1:{server.port}/"
            got = [await transport.send(url, HEADERS, b"{}", 5.0) for _ in range(2)]
            await transport.close()
            return got, len(server.talks)

    got, requests = asyncio.run(run())
    assert all(isinstance(reply, RawReply) for reply in got)
    assert requests == 3


def test_a_lost_request_on_a_first_connection_is_not_sent_again(
    make: Callable[..., PyreqwestTransport],
) -> None:
    async def run() -> int:
        transport = make()
        async with serving(replies(then="reset")) as server:
            await transport.send(f"http://127.0.0.1:{server.port}/", HEADERS, b"{}", 5.0)
            await transport.close()
            return len(server.talks)

    assert asyncio.run(run()) == 1


def test_a_timeout_is_never_sent_again(make: Callable[..., PyreqwestTransport]) -> None:
    async def hang_on_the_second(talk: Talk) -> None:
        await (hang(talk) if talk.number > 1 else talk.write(OK))

    async def run() -> int:
        transport = make()
        async with serving(hang_on_the_second) as server:
            url = f"http://127.0.0.1:{server.port}/"
            for timeout_s in (5.0, 0.1):
                await transport.send(url, HEADERS, b"{}", timeout_s)
            await transport.close()
            return len(server.talks)

    assert asyncio.run(run()) == 2


def test_a_cancelled_request_ends_at_once_and_leaves_the_transport_usable(
    make: Callable[..., PyreqwestTransport],
) -> None:
    async def run() -> RawReply | Failure:
        transport = make()
        arrived = asyncio.Event()

        async def answer(talk: Talk) -> None:
            if talk.number > 1:
                await talk.write(OK)
            else:
                arrived.set()

        async with serving(answer) as server:
            url = f"http://127.0.0.1:{server.port}/"
            sending = asyncio.create_task(transport.send(url, HEADERS, b"{}", 30.0))
            await arrived.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            reply = await transport.send(url, HEADERS, b"{}", 5.0)
            await transport.close()
            return reply

    assert isinstance(asyncio.run(run()), RawReply)


def test_many_requests_at_once_each_get_their_own_reply(make: Callable[..., PyreqwestTransport]) -> None:
    async def run() -> list[bytes]:
        transport = make()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % length + body)
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        sent = [transport.send(url, HEADERS, b"%d" % number, 10.0) for number in range(100)]
        got = await asyncio.gather(*sent)
        await transport.close()
        listener.close()
        return [reply.body for reply in got if isinstance(reply, RawReply)]

    assert asyncio.run(run()) == [b"%d" % number for number in range(100)]


def test_a_proxy_from_the_environment_is_used_but_never_for_the_loopback(
    make: Callable[..., PyreqwestTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[Server, list[RawReply | Failure]]:
        async with serving(replies(OK)) as proxy, serving(replies(OK)) as server:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            transport = make()
            got = [
                await transport.send(url, HEADERS, b"{}", 5.0)
                for url in ("http://far.invalid/v1", f"http://127.0.0.1:{server.port}/v1")
            ]
            await transport.close()
            return proxy, got

    proxy, got = asyncio.run(run())
    assert all(isinstance(reply, RawReply) for reply in got)
    assert [talk.head.split(b"\r\n")[0] for talk in proxy.talks] == [b"POST http://far.invalid/v1 HTTP/1.1"]


def test_no_proxy_is_obeyed(make: Callable[..., PyreqwestTransport], monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[int, RawReply | Failure]:
        async with serving(replies(OK)) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("NO_PROXY", "far.invalid")
            transport = make()
            found = await transport.send("http://far.invalid/v1", HEADERS, b"{}", 5.0)
            await transport.close()
            return len(proxy.talks), found

    requests, found = asyncio.run(run())
    assert requests == 0
    assert isinstance(found, Failure)


# --- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("tls")
    path, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext basicConstraints=critical,CA:FALSE "
        "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", path], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return path, context


def over_tls(
    make: Callable[..., PyreqwestTransport], context: ssl.SSLContext, **settings: object
) -> RawReply | Failure:
    async def run() -> RawReply | Failure:
        transport = make(**settings)
        async with serving(replies(OK), tls=context) as server:
            try:
                return await transport.send(f"https://127.0.0.1:{server.port}/v1", HEADERS, b"{}", 5.0)
            finally:
                await transport.close()

    return asyncio.run(run())


def test_a_certificate_that_nobody_vouches_for_is_refused_and_the_option_named(
    make: Callable[..., PyreqwestTransport], certificate: tuple[Path, ssl.SSLContext]
) -> None:
    found = over_tls(make, certificate[1])
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TLS
    assert "--ca-file" in found.message


def test_a_certificate_in_the_ca_file_is_trusted(
    make: Callable[..., PyreqwestTransport], certificate: tuple[Path, ssl.SSLContext]
) -> None:
    assert isinstance(over_tls(make, certificate[1], ca_file=str(certificate[0])), RawReply)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_that_the_environment_names_is_trusted(
    make: Callable[..., PyreqwestTransport], certificate: tuple[Path, ssl.SSLContext], variable: str
) -> None:
    environment = {variable: str(certificate[0])}
    assert isinstance(over_tls(make, certificate[1], environment=environment), RawReply)


def test_a_server_without_tls_is_a_fault_of_tls(make: Callable[..., PyreqwestTransport]) -> None:
    async def run() -> RawReply | Failure:
        transport = make()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        found = await transport.send(f"https://127.0.0.1:{port}/", HEADERS, b"{}", 5.0)
        await transport.close()
        listener.close()
        return found

    found = asyncio.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TLS


def test_a_bad_ca_file_is_refused_before_anything_is_sent(
    make: Callable[..., PyreqwestTransport], tmp_path: Path
) -> None:
    with pytest.raises(JobError, match="--ca-file"):
        make(ca_file=str(tmp_path / "missing.pem"))
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(JobError, match="no certificate"):
        make(ca_file=str(tmp_path / "empty.pem"))


# --- pyreqwest alone ---------------------------------------------------------------------------------------


def every_kind(base: type[exceptions.PyreqwestError]) -> Iterator[type[exceptions.PyreqwestError]]:
    yield base
    for kind in base.__subclasses__():
        yield from every_kind(kind)


@pytest.mark.parametrize("kind", sorted(set(every_kind(exceptions.PyreqwestError)), key=str))
def test_every_exception_of_pyreqwest_is_mapped(kind: type[exceptions.PyreqwestError]) -> None:
    assert kind in pyreqwest_._MAP
