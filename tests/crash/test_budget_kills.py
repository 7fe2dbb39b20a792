"""Random budgets with real kills: a run over bodies with images, against a server that bills at worst."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.billing import Price, bill, body, without_bound
from tests.workplace import Workplace, kill, until

from rowmill.simulator import Simulator
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer

pytestmark = pytest.mark.slow

SEEDS = range(10)
BUDGETS = 5
IN_FLIGHT = 64
AT_ONCE = 12  # of 600 a minute, at the start
DELAY_S = 0.05


class Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other end was killed."""


class Server:
    """Counts what it bills before it answers; some requests it never answers."""

    def __init__(self) -> None:
        self.price, self.chance = Price(0.0, 0.0), random.Random(0)
        self.billed_usd = self.most_usd = self.dearest_usd = 0.0
        self.requests = 0
        self._turn = threading.Lock()
        self._over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = Http(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def begin(self, price: Price, chance: random.Random) -> None:
        self.price, self.chance = price, chance
        self.billed_usd = self.most_usd = self.dearest_usd = 0.0
        self.requests = 0

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        content = request.rfile.read(int(request.headers["content-length"]))
        with self._turn:
            billed = bill(self.price, content, self.chance)
            self.requests += 1
            self.billed_usd += billed.usd
            self.most_usd += billed.most_usd
            self.dearest_usd = max(self.dearest_usd, billed.most_usd)
        self._over.wait(DELAY_S)
        request.close_connection = billed.reply is None
        if billed.reply is None:
            # Without a byte, and so soon, a kept connection counts as stale and the request as never read.
            request.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{")
        else:
            request.send_response(billed.status)
            request.send_header("content-length", str(len(billed.reply)))
            request.end_headers()
            request.wfile.write(billed.reply)

    def close(self) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def prepare(workplace: Workplace, server: Server, chance: random.Random) -> float:
    """Writes a batch file and a job over it; the budget."""
    rows = chance.randint(20, 60)
    server.begin(Price(chance.choice([0.0, 1e-6, 1e-5]), chance.uniform(1e-6, 1e-4)), chance)
    bodies = [without_bound(n) if chance.random() < 0.05 else body(chance, n) for n in range(rows)]
    lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions"} for n in range(rows)]
    text = "".join(json.dumps({**line, "body": asked}) + "\n" for line, asked in zip(lines, bodies, strict=True))
    workplace.write("in.jsonl", text)
    limit_usd = chance.uniform(0.2, 1.2) * rows * server.price.usd(300, 30)
    rpm = chance.choice([None, 600])
    endpoint = {"model": "vllm/m", "url": server.url, "in_flight": IN_FLIGHT, "rpm": rpm}
    endpoint["price"] = server.price.object()
    job = {"source": "in.jsonl", "endpoints": [endpoint], "output": "out.jsonl", "retry": {"backoff_s": 0.01}}
    workplace.write("job.yaml", json.dumps({**job, "budget_usd": limit_usd}))
    return limit_usd


def kill_at(process: subprocess.Popen[str], server: Server, requests: int) -> None:
    """Kills it once the server has seen so many requests, or when it has ended by itself."""
    until(lambda: server.requests >= requests or process.poll() is not None)
    kill(process)


def charged(run_file: Path) -> float:
    """What counts as spent when the next session begins."""
    Writer(run_file).close(None)
    with RunFileReader(run_file, checked=False) as reader:
        totals = reader.totals()
    return totals.known_usd + totals.unconfirmed_usd


def check(server: Server, limit_usd: float, charged_usd: float, on_the_way_usd: float) -> None:
    assert server.billed_usd <= limit_usd + 1e-9, "overshot"
    assert charged_usd <= limit_usd + 1e-9, "charged above the budget"
    assert charged_usd <= server.most_usd + on_the_way_usd + 1e-9, "charged more than what was sent may cost"
    assert charged_usd >= server.billed_usd - 1e-9, "charged less than was billed"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_budget_is_overshot_nor_charged_more_than_was_sent_when_runs_are_killed(
    tmp_path: Path, server: Server, seed: int
) -> None:
    for number in range(BUDGETS):
        chance = random.Random(seed * BUDGETS + number)
        folder = tmp_path / str(number)
        folder.mkdir()
        workplace = Workplace(folder, Simulator())
        limit_usd = prepare(workplace, server, chance)
        goal = chance.randint(1, 12)
        process = workplace.begin("run", "job.yaml", "--quiet")
        kill_at(process, server, goal)
        # What is recorded as sent a moment before the server has it: connections are dialled meanwhile.
        burst = AT_ONCE if '"rpm": 600' in (folder / "job.yaml").read_text() else IN_FLIGHT
        check(server, limit_usd, charged(folder / "out.jsonl.rowmill"), burst * server.dearest_usd)
        ended = workplace.rowmill("run", "job.yaml", "--quiet")
        assert ended.code in (0, 3, 4), ended.err
        check(server, limit_usd, charged(folder / "out.jsonl.rowmill"), burst * server.dearest_usd)
