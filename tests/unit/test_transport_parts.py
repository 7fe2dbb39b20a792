"""The small parts of the transports: deadlines, encodings, proxies, the chooser, the dialling limit."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import pytest

from rowmill.errors import JobError
from rowmill.io.http import open_transport
from rowmill.io.http.connection import Connection
from rowmill.io.http.deadlines import Deadlines
from rowmill.io.http.dialer import Dialer
from rowmill.io.http.encodings import TooLargeError, unpacked
from rowmill.io.http.exchange import Exchange
from rowmill.io.http.heads import HeaderNames
from rowmill.io.http.http1 import DirectTransport
from rowmill.io.http.known_heads import MOST_HEADS, KnownHeads
from rowmill.io.http.origin import origin_of
from rowmill.io.http.pool import MOST_DIALLING, Pool, PoolLimits
from rowmill.io.http.proxies import goes_through_a_proxy
from rowmill.io.http.pyreqwest_ import PyreqwestTransport
from rowmill.io.http.write_batch import WriteBatch
from rowmill.records import Failure, RawReply

TURNS = 10  # of the loop, enough for whatever is under way


class Alarm:
    """A loop's `call_later` and clock, driven by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due_s: float | None = None
        self.set_count = 0

    def call_later(self, delay_s: float, ring: Any) -> Alarm:
        self.due_s, self._ring = self.now_s + delay_s, ring
        self.set_count += 1
        return self

    def cancel(self) -> None:
        self.due_s = None

    def advance(self, to_s: float) -> None:
        while self.due_s is not None and self.due_s <= to_s:
            self.now_s, self.due_s = self.due_s, None
            self._ring()
        self.now_s = to_s


class Milk:
    def __init__(self, deadline_s: float, alarm: Alarm) -> None:
        self.deadline_s = deadline_s
        self.expired_s: float | None = None
        self._alarm = alarm

    def expire(self) -> None:
        self.expired_s = self._alarm.now_s


def watching(ones: list[Milk]) -> tuple[Deadlines, Alarm]:
    alarm = Alarm()

    def in_flight() -> list[Milk]:
        return [one for one in ones if one.expired_s is None]

    return Deadlines(alarm, in_flight, lambda: alarm.now_s), alarm  # type: ignore[arg-type]


def test_each_deadline_is_met_within_20_ms_and_never_early() -> None:
    ones: list[Milk] = []
    deadlines, alarm = watching(ones)
    for number in (3, 1, 200, 2, 90, 91):
        ones.append(Milk(number * 0.007, alarm))
        deadlines.watch(ones[-1].deadline_s)
    alarm.advance(10.0)
    assert all(one.expired_s is not None and 0 <= one.expired_s - one.deadline_s <= 0.0201 for one in ones)


def test_what_is_in_flight_no_more_does_not_expire() -> None:
    ones: list[Milk] = []
    deadlines, alarm = watching(ones)
    one = Milk(1.0, alarm)
    ones.append(one)
    deadlines.watch(one.deadline_s)
    ones.clear()
    alarm.advance(2.0)
    assert one.expired_s is None


def test_a_thousand_prompt_replies_need_one_timer() -> None:
    deadlines, alarm = watching([])
    for _ in range(1000):
        alarm.advance(alarm.now_s + 0.001)
        deadlines.watch(alarm.now_s + 120.0)
    assert alarm.set_count == 1


def test_no_timer_is_left_when_nothing_is_in_flight() -> None:
    deadlines, alarm = watching([])
    deadlines.watch(1.0)
    alarm.advance(1.5)
    assert alarm.due_s is None


TEXT = b'{"a":1}' * 100
RAW = zlib.compressobj(wbits=-15)
BARE = RAW.compress(TEXT) + RAW.flush()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, ""),
        (TEXT, "identity"),
        (gzip.compress(TEXT, mtime=0), "gzip"),
        (gzip.compress(TEXT, mtime=0), "X-GZIP"),
        (zlib.compress(TEXT), "deflate"),
        (BARE, "deflate"),
        (gzip.compress(zlib.compress(TEXT), mtime=0), "deflate, gzip"),
        (gzip.compress(TEXT[:300], mtime=0) + gzip.compress(TEXT[300:], mtime=0), "gzip"),
    ],
    ids=["none", "identity", "gzip", "x-gzip", "zlib", "deflate", "two", "members"],
)
def test_every_encoding_that_is_known_is_undone(body: bytes, encoding: str) -> None:
    assert unpacked(body, encoding, 10_000) == TEXT


@pytest.mark.parametrize(
    ("body", "encoding", "why"),
    [
        (b"x", "br", "'br' is unknown"),
        (b"text", "gzip", "not in the encoding"),
        (gzip.compress(TEXT, mtime=0)[:-4], "gzip", "ends too early"),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpacked(body, encoding, 10_000)


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(TooLargeError):
        unpacked(gzip.compress(bytes(10_000_000)), "gzip", 1000)


PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "environment", "proxied"),
    [
        ("https://api.example.com/v1", PROXY, True),
        ("https://api.example.com/v1", {"https_proxy": "http://proxy:3128"}, True),
        ("https://api.example.com/v1", {"ALL_PROXY": "socks5://proxy:1080"}, True),
        ("https://api.example.com/v1", {"HTTPS_PROXY": ""}, False),
        ("http://api.example.com/v1", PROXY, False),
        ("http://api.example.com/v1", {"HTTP_PROXY": "http://proxy"}, True),
        ("https://localhost/v1", PROXY, False),
        ("https://127.0.0.9:8000/v1", PROXY, False),
        ("https://[::1]/v1", PROXY, False),
        ("https://api.example.com/v1", PROXY | {"NO_PROXY": "*"}, False),
        ("https://api.example.com/v1", PROXY | {"NO_PROXY": "other.org, example.com"}, False),
        ("https://api.example.com/v1", PROXY | {"no_proxy": ".example.com"}, False),
        ("https://badexample.com/v1", PROXY | {"NO_PROXY": "example.com"}, True),
        ("https://10.1.2.3/v1", PROXY | {"NO_PROXY": "10.0.0.0/8"}, False),
        ("https://10.1.2.3/v1", PROXY | {"NO_PROXY": "10.1.2.4,nonsense/9"}, True),
    ],
)
def test_a_proxy_from_the_environment_decides_the_transport(
    url: str, environment: dict[str, str], proxied: bool
) -> None:
    assert goes_through_a_proxy(origin_of(url), environment) is proxied
    kind = PyreqwestTransport if proxied else DirectTransport
    assert type(open_transport(url, environment=environment)) is kind


class NoAnswer:
    """A dialer that never gets through."""

    def __init__(self) -> None:
        self.dialled = 0

    async def dial(self, make: object) -> Failure:
        self.dialled += 1
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None: ...


def test_a_certificate_that_cannot_be_read_is_told_before_the_first_tls_request_and_else_not_missed(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    environment = {"SSL_CERT_FILE": str(broken)}
    with pytest.raises(JobError, match="certificate"):
        open_transport("https://127.0.0.1:9/v1", environment=environment)
    open_transport("http://127.0.0.1:9/v1", environment=environment)


def test_only_so_many_connections_are_opened_at_once() -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        dialer = NoAnswer()
        pool = Pool(dialer, PoolLimits(10.0, None, 1000, 30.0), HeaderNames(), WriteBatch(loop), loop)  # type: ignore[arg-type]
        for _ in range(500):
            ending: asyncio.Future[RawReply | Failure] = loop.create_future()
            pool.submit(Exchange(b"", b"", "x:1", 5.0, perf_counter() + 5.0, ending))
        await asyncio.sleep(0)
        await pool.close()
        return dialer.dialled

    assert asyncio.run(run()) == MOST_DIALLING


def test_what_one_turn_of_the_loop_has_to_send_leaves_together() -> None:
    happened: list[str] = []

    class Waiting:
        def __init__(self, name: str) -> None:
            self.flush = partial(happened.append, f"{name} left")

    async def run() -> None:
        write_batch = WriteBatch(asyncio.get_running_loop())
        for name in ("first", "second"):
            write_batch.put(Waiting(name))
            happened.append(f"{name} was put")
        await asyncio.sleep(0)
        write_batch.put(Waiting("third"))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert happened == ["first was put", "second was put", "first left", "second left", "third left"]


@pytest.mark.parametrize(
    "lose",
    [
        lambda connection: connection.connection_lost(None),
        lambda connection: connection.eof_received(),
        lambda connection: connection.data_received(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"),
    ],
    ids=["lost", "closed", "timed out by the server"],
)
def test_a_request_whose_connection_is_lost_before_it_left_goes_to_another(lose: Callable[[Connection], None]) -> None:
    class Wire:
        def __init__(self, connection: Connection) -> None:
            self.connection = connection
            self.written = b""

        def write(self, data: bytes) -> None:
            self.written += data

        def get_extra_info(self, name: str) -> None:
            return None

        def abort(self) -> None:
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    class Dialler:
        async def dial(self, make: Callable[[], Connection]) -> Connection:
            wire = Wire(make())
            opened.append(wire)
            wire.connection.connection_made(cast("asyncio.Transport", wire))
            return wire.connection

        async def close(self) -> None: ...

    opened: list[Wire] = []

    async def turns() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        limits = PoolLimits(10.0, None, 1000, 30.0)
        pool = Pool(cast("Dialer", Dialler()), limits, HeaderNames(), WriteBatch(loop), loop)
        ending: asyncio.Future[RawReply | Failure] = loop.create_future()
        pool.submit(Exchange(b"POST / HTTP/1.1\r\ncontent-length: ", b"{}", "x:1", 5.0, perf_counter() + 5.0, ending))
        await asyncio.sleep(0)
        lose(opened[0].connection)
        await turns()
        has_ended = ending.done()
        await pool.close()
        return has_ended

    assert asyncio.run(run()) is False
    assert [wire.written for wire in opened] == [b"", b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"]


def test_names_of_headers_are_remembered_up_to_a_bound() -> None:
    names = HeaderNames()
    assert [names[b"X-N%d" % number] for number in range(5000)][-1] == "x-n4999"
    assert len(names) == 1000


def numbered(number: int) -> tuple[bytes, RawReply]:
    head = b"HTTP/1.1 200 OK\r\nx-request-id: %d\r\ncontent-length: 2\r\n\r\n" % number
    return head, RawReply(200, {"x-request-id": str(number)}, b"{}", 0.1)


def test_a_head_is_known_by_all_its_bytes() -> None:
    known = KnownHeads()
    head, reply = numbered(7)
    known.learn(head + b"{}", reply)
    assert known.get(head) == (200, {"x-request-id": "7"}, 2)
    assert known.get(numbered(8)[0]) is None


def test_only_heads_with_a_body_of_the_length_they_tell_are_known() -> None:
    known = KnownHeads()
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    known.learn(chunked + b"2\r\n{}\r\n0\r\n\r\n", RawReply(200, {}, b"{}", 0.1))
    head, reply = numbered(7)
    known.learn(b"HTTP/1.1 100 Continue\r\n\r\n" + head + b"{}", reply)
    assert not known


def test_heads_that_never_come_again_are_given_up() -> None:
    known = KnownHeads()
    for number in range(MOST_HEADS + 1):
        head, reply = numbered(number)
        known.learn(head + b"{}", reply)
    assert not known
    known.learn(head + b"{}", reply)
    assert not known


def test_heads_that_come_again_go_on_to_be_learned_up_to_a_bound() -> None:
    known = KnownHeads()
    for number in range(3 * MOST_HEADS):
        head, reply = numbered(number)
        known.learn(head + b"{}", reply)
        known.hits += 1
    assert len(known) == MOST_HEADS
    assert numbered(3 * MOST_HEADS - 1)[0] in known


def test_a_reply_of_ever_more_gzip_members_is_not_unpacked_for_ever() -> None:
    with pytest.raises(ValueError, match="members"):
        unpacked(gzip.compress(b"") * 100_000, "gzip", 1_000_000)
