"""Takes requests, asks the behaviour what to answer, and keeps the slots and the queue before them.

Lives on one loop.  It knows connections only by what they can send.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.simulator.behaviour import Behaviour, Latency, ReadRequest, plan, read_request
from rowmill.simulator.counters import Counters
from rowmill.simulator.quotas import Quotas
from rowmill.simulator.replies import body_of
from rowmill.simulator.script import Fault, Step, step_from
from rowmill.simulator.shapes import read_shaped, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowmill.simulator.protocol import Connection

_LIMITS = ("rpm", "tpm", "input_tpm", "output_tpm", "window_s", "dialect", "retry_after")
# These take a slot for their latency; errors are answered at once, before any work is done.
_WITHOUT_SLOT = frozenset({Fault.ERROR, Fault.RESET})


class _Exchange:
    """One request that is not answered yet."""

    __slots__ = ("connection", "headers", "number", "request", "serving", "step", "timer")

    def __init__(self, connection: Connection, request: ReadRequest, number: int) -> None:
        self.connection = connection
        self.request = request
        self.number = number
        self.step = Step()
        self.headers = ""
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None


class ServerDesk:
    """The simulator's decisions on one loop.  `on_first_request` is called once after each reset."""

    def __init__(self, behaviour: Behaviour, on_first_request: Callable[[], None]) -> None:
        self.behaviour = behaviour
        self.connections: set[Connection] = set()
        self._on_first_request = on_first_request
        self._exchanges: dict[Connection, _Exchange] = {}
        self._queue: deque[_Exchange] = deque()
        self._serving = 0
        self._filling = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        behaviour = self.behaviour
        self.counters = Counters(behaviour.window_s, behaviour.log)
        self.counters.in_flight = len(self._exchanges)
        self._quotas = Quotas(behaviour)
        self._random = Random(behaviour.seed)

    def reset(self) -> None:
        """Forgets what was seen: counters, positions in scripts, limits' windows, the start of outages."""
        self._start_afresh()

    def change(self, settings: dict[str, Any]) -> None:
        """Replaces settings while running; raises TypeError or ValueError and then changes nothing."""
        self.behaviour = replace(self.behaviour, **settings)
        if any(name in settings for name in _LIMITS):
            self._quotas = Quotas(self.behaviour)
        self._fill_slots()

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.counters.connections += 1

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        exchange = self._exchanges.pop(connection, None)
        if exchange is None:
            return
        self.counters.in_flight -= 1
        if exchange.timer is not None:
            exchange.timer.cancel()
        self.counters.answers["abandoned"] += 1
        if exchange.serving:
            self._serving -= 1
            self._fill_slots()
        elif exchange in self._queue:
            self._queue.remove(exchange)

    def received(self, connection: Connection, method: str, path: str, authorization: str, body: bytes) -> None:
        if path.endswith("/chat/completions") and method == "POST":
            self._take(connection, authorization, body, None)
        elif (shape := shape_of(path)) is not None and method == "POST":
            self._take(connection, authorization, body, shape)
        else:
            status, content_type, content = self._side_door(method, path, body)
            connection.reply(status, f"content-type: {content_type}\r\n", content)

    def _take(self, connection: Connection, authorization: str, body: bytes, shape: str | None) -> None:
        now_s = time.monotonic()
        try:
            request = read_request(body) if shape is None else read_shaped(shape, body)
        except ValueError as fault:
            step = step_from("error", {"status": "400", "code": "invalid_json", "message": str(fault)})
            request = ReadRequest("", step, "", 0, None, None, False)
        first = self.counters.first_s is None
        before = self.counters.arrived(request.token, now_s)
        if first:
            self._on_first_request()
        exchange = _Exchange(connection, request, self.counters.requests)
        self._exchanges[connection] = exchange
        self._decide(exchange, authorization, before, now_s)
        self.counters.decided(request.token, _named(exchange.step), now_s)
        if exchange.step.fault in _WITHOUT_SLOT:
            self._start(exchange, exchange.step.latency_s or 0.0)
        else:
            self._queue.append(exchange)
            self._fill_slots()

    def _decide(self, exchange: _Exchange, authorization: str, before: int, now_s: float) -> None:
        behaviour, request = self.behaviour, exchange.request
        outage = self._outage_step(now_s) if behaviour.outages else None
        if outage is not None:
            exchange.step = outage
            return
        if behaviour.key is not None and authorization != f"Bearer {behaviour.key}":
            exchange.step = step_from("error", {"status": "401", "code": "invalid_api_key"})
            return
        exchange.step = plan(behaviour, request, before, self._random)
        if not self._quotas:
            return
        if exchange.step.fault is not Fault.ERROR:
            wait_s = self._quotas.admit(request, now_s)
            if wait_s > 0.0:
                exchange.headers = self._quotas.retry_headers(wait_s, time.time())
                exchange.step = step_from("error", {"status": "429", "code": "rate_limit_exceeded"})
            else:
                self.counters.admitted(self._quotas.charge(request), now_s)
        exchange.headers += self._quotas.headers(now_s, time.time())

    def _outage_step(self, now_s: float) -> Step | None:
        since_s = now_s - (self.counters.first_s or now_s)
        for outage in self.behaviour.outages:
            if outage.start_s <= since_s < outage.end_s:
                return Step.parse("reset" if outage.kind == "refuse" else outage.kind)
        return None

    def _fill_slots(self) -> None:
        # Answers without latency end inside the loop below and would nest as deep as the queue is long.
        if self._filling:
            return
        self._filling = True
        slots = self.behaviour.slots
        while self._queue and (slots is None or self._serving < slots):
            exchange = self._queue.popleft()
            exchange.serving = True
            self._serving += 1
            self.counters.queue_is(self._serving, len(self._queue))
            latency_s = exchange.step.latency_s
            if latency_s is None:
                latency = self.behaviour.latency
                assert isinstance(latency, Latency)
                latency_s = latency.draw(self._random)
            self._start(exchange, latency_s)
        if self._queue:
            self.counters.queue_is(self._serving, len(self._queue))
        self._filling = False

    def _start(self, exchange: _Exchange, latency_s: float) -> None:
        if latency_s > 0:
            exchange.timer = asyncio.get_running_loop().call_later(latency_s, self._answer, exchange)
        else:
            self._answer(exchange)

    def _answer(self, exchange: _Exchange) -> None:
        step = exchange.step
        if step.fault is Fault.HANG:
            return
        body = body_of(step, exchange.request, self.behaviour, exchange.number)
        self.counters.used(body.input_tokens, body.output_tokens, body.cached_tokens)
        retry_after = f"retry-after: {step.retry_after}\r\n" if step.retry_after else ""
        extra = "".join(f"{name}: {value}\r\n" for name, value in step.headers.items())
        headers = (
            f"content-type: {body.content_type}\r\nx-request-id: sim-{exchange.number}\r\n"
            f"{exchange.headers}{retry_after}{extra}"
        )
        drip_s = self.behaviour.drip_s
        if step.fault is Fault.DRIP:
            exchange.timer = asyncio.get_running_loop().call_later(drip_s, self._end, exchange)
        else:
            # Before the bytes leave: a client may send its next request at once.
            self._end(exchange)
        exchange.connection.send(step.fault, step.status, headers, body.content, drip_s)

    def _end(self, exchange: _Exchange) -> None:
        self._exchanges.pop(exchange.connection, None)
        self.counters.in_flight -= 1
        if exchange.serving:
            exchange.serving = False
            self._serving -= 1
            self._fill_slots()

    def _side_door(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        if path == "/counters":
            return 200, "application/json", msgspec.json.encode(self.counters.report())
        if path == "/reset" and method == "POST":
            self.reset()
            return 200, "application/json", b"{}"
        if path == "/change" and method == "POST":
            try:
                self.change(msgspec.json.decode(body, type=dict[str, Any]))
            except (TypeError, ValueError) as fault:
                return 400, "application/json", msgspec.json.encode({"error": {"message": str(fault)}})
            return 200, "application/json", b"{}"
        if path == "/metrics":
            gauges = f"vllm:num_requests_running {self._serving}\nvllm:num_requests_waiting {len(self._queue)}\n"
            return 200, "text/plain; version=0.0.4", gauges.encode()
        if path == "/health":
            return 200, "application/json", b'{"status":"ok"}'
        if path.endswith("/models"):
            models = [{"id": name, "object": "model"} for name in self.behaviour.models or ("simulated",)]
            return 200, "application/json", msgspec.json.encode({"object": "list", "data": models})
        return 404, "application/json", b'{"detail":"Not Found"}'


def _named(step: Step) -> str:
    return str(step.status) if step.fault in (Fault.OK, Fault.ERROR) else step.fault.value
