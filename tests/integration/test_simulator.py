"""The simulator over a real socket on the loopback."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.command_line import call

from rowmill.simulator import Behaviour, Outage, Simulator


def post(simulator: Simulator, text: str, timeout_s: float = 10.0, key: str = "") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(simulator.root.removeprefix("http://"), timeout=timeout_s)
    try:
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}]})
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def content(body: bytes) -> str:
    return str(msgspec.json.decode(body)["choices"][0]["message"]["content"])


def test_a_row_gets_its_own_token_back() -> None:
    with Simulator() as simulator:
        assert content(post(simulator, "hello [[row-3]]")[2]) == "row-3"
        assert simulator.counters()["tokens"] == {"row-3": 1}


def test_a_scripted_row_fails_twice_and_then_answers() -> None:
    with Simulator(Behaviour(scripts={"a": "503, 429 retry-after=2, ok"})) as simulator:
        seen = [post(simulator, "[[a]]") for _ in range(4)]
        assert [status for status, _, _ in seen] == [503, 429, 200, 200]
        assert seen[1][1]["retry-after"] == "2"
        assert post(simulator, "[[b]]")[0] == 200
        assert simulator.counters()["answers"] == {"503": 1, "429": 1, "200": 3}


def test_slots_make_a_queue_in_order_of_arrival() -> None:
    with (
        Simulator(Behaviour(slots=2, latency="0.02", log=True)) as simulator,
        ThreadPoolExecutor(8) as pool,
    ):
        replies = list(pool.map(lambda n: post(simulator, f"[[{n}]]"), range(8)))
        counters = simulator.counters()
    assert [content(body) for _, _, body in replies] == [str(n) for n in range(8)]
    assert counters["peak_serving"] == 2
    assert counters["peak_in_flight"] > 2
    assert len(counters["log"]) == 8


def test_requests_above_the_limit_are_throttled() -> None:
    with Simulator(Behaviour(rpm=3)) as simulator:
        seen = [post(simulator, f"[[{n}]]") for n in range(5)]
        assert [status for status, _, _ in seen] == [200, 200, 200, 429, 429]
        assert 0 < int(seen[3][1]["retry-after"]) <= 60
        assert seen[0][1]["x-ratelimit-remaining-requests"] == "2"
        assert simulator.counters()["peak_admitted_in_window"] == 3


def test_a_cut_body_ends_before_its_length() -> None:
    with (
        Simulator(Behaviour(scripts={"*": "cut..."})) as simulator,
        pytest.raises(http.client.IncompleteRead),
    ):
        post(simulator, "x")


def test_a_reset_gives_no_byte_of_a_reply() -> None:
    with Simulator(Behaviour(scripts={"*": "reset..."})) as simulator, pytest.raises(ConnectionResetError):
        post(simulator, "x")


def test_a_hanging_request_counts_as_in_flight_until_it_is_given_up() -> None:
    with Simulator(Behaviour(scripts={"a": "hang..."})) as simulator:
        with pytest.raises(TimeoutError):
            post(simulator, "[[a]]", timeout_s=0.1)
        post(simulator, "[[b]]")
        counters = simulator.counters()
        assert counters["answers"]["hang"] == 1
        assert counters["in_flight"] in (0, 1)


def test_a_dripping_reply_arrives_whole() -> None:
    with Simulator(Behaviour(scripts={"*": "drip..."}, drip_s=0.05)) as simulator:
        assert content(post(simulator, "[[a]]")[2]) == "a"
        assert simulator.counters()["in_flight"] == 0


def test_an_outage_refuses_connections_and_ends() -> None:
    with Simulator(Behaviour(outages=(Outage(0.0, 0.2),))) as simulator:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            post(simulator, "first")
        port = int(simulator.root.rpartition(":")[2])
        refused = 0
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                refused += 1
        assert refused > 0
        assert post(simulator, "again")[0] == 200


def test_an_outage_can_answer_502() -> None:
    with Simulator(Behaviour(outages=(Outage(0.0, 60.0, "502"),))) as simulator:
        assert post(simulator, "x")[0] == 502
        simulator.change(outages=())
        assert post(simulator, "x")[0] == 200


def test_slots_can_grow_while_it_runs() -> None:
    with Simulator(Behaviour(slots=1, scripts={"a": "hang..."})) as simulator, ThreadPoolExecutor(2) as pool:
        pool.submit(post, simulator, "[[a]]", 20.0)
        while simulator.counters()["requests"] < 1:
            pass
        waiting = pool.submit(post, simulator, "[[b]]")
        while simulator.counters()["requests"] < 2:
            pass
        assert not waiting.done()
        simulator.change(slots=2)
        assert content(waiting.result(10)[2]) == "b"
        simulator.stop()


def test_a_long_queue_of_quick_answers_does_not_nest() -> None:
    with (
        Simulator(Behaviour(slots=1, scripts={"a": "hang..."})) as simulator,
        ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(post, simulator, "[[a]]", 20.0)
        while simulator.counters()["requests"] < 1:
            pass
        text = b'{"messages":[{"role":"user","content":"x"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(text)
        port = int(simulator.root.rpartition(":")[2])
        open_sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        for one in open_sockets:
            one.sendall(head + text)
        while simulator.counters()["requests"] < 301:
            pass
        simulator.change(slots=2)
        assert all(one.recv(12) == b"HTTP/1.1 200" for one in open_sockets)
        for one in open_sockets:
            one.close()
        simulator.stop()


def test_a_wrong_key_is_401() -> None:
    with Simulator(Behaviour(key="right")) as simulator:
        assert post(simulator, "x", key="wrong")[0] == 401
        assert post(simulator, "x", key="right")[0] == 200


def test_counters_are_served_and_forgotten_on_demand() -> None:
    with Simulator() as simulator:
        post(simulator, "[[a]]")
        connection = http.client.HTTPConnection(simulator.root.removeprefix("http://"))
        connection.request("GET", "/counters")
        assert msgspec.json.decode(connection.getresponse().read())["requests"] == 1
        connection.request("POST", "/reset", b"")
        connection.getresponse().read()
        connection.request("GET", "/counters")
        assert msgspec.json.decode(connection.getresponse().read())["requests"] == 0
        connection.close()


def test_a_change_that_is_wrong_changes_nothing() -> None:
    with Simulator() as simulator:
        with pytest.raises(TypeError):
            simulator.change(slotz=3)
        assert post(simulator, "x")[0] == 200


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("module", [("rowmill", "simulate"), ("rowmill.simulator",)])
def test_the_command_prints_its_address_first_and_its_counters_last(
    module: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    arguments = [sys.executable, "-m", *module, "--fail", "2%", "--script", "a:503, ok"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        url = server.stdout.readline().strip()
        connection = http.client.HTTPConnection(url.removeprefix("http://").removesuffix("/v1"))
        connection.request("POST", "/v1/chat/completions", b'{"messages":[{"role":"user","content":"[[a]]"}]}')
        assert connection.getresponse().status == 503
        connection.close()
        server.send_signal(number)
        assert msgspec.json.decode(server.stdout.read())["tokens"] == {"a": 1}
        assert f"--url {url}" in server.stderr.read()
        assert server.wait(10) == code


def test_the_command_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    for wrong in (["--rmp", "600"], ["--slots", "0"], ["--latency", "soon"], ["--port", "70000"], ["--outage", "x"]):
        ended = call(["simulate", *wrong], tmp_path, os.environ)
        assert (ended.code, ended.out) == (2, "")
        assert "Traceback" not in ended.err
        assert "rowmill simulate: error: " in ended.err


def test_the_commands_help_names_its_options(tmp_path: Path) -> None:
    ended = call(["simulate", "--help"], tmp_path, os.environ)
    assert ended.code == 0
    assert all(option in ended.out for option in ("--rpm", "--slots", "--latency", "--fail", "--outage"))
