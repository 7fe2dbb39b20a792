"""Both transports against the simulator: `python -m bench.transports`.

Each measurement is a process of its own, so that peaks of memory do not mix; three turns, medians.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import uvloop

from bench.server import server
from bench.tls_server import tls_server
from rowmill.io.http import TABLE
from rowmill.records import RawReply

BODY = b'{"model":"sim","messages":[{"role":"user","content":"Label this review: it works very well, I like it"}]}'
HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}
TURNS = 3


@dataclass(frozen=True)
class Load:
    """What one measurement sends; `latency` is the server's, in seconds."""

    in_flight: int
    latency: str
    requests: int
    tls: bool = False


LOADS = (Load(128, "0", 100_000), Load(3000, "0.2", 100_000), Load(1000, "0.2", 50_000, tls=True))


async def send_all(name: str, url: str, load: Load, ca_file: str | None) -> dict[str, float]:
    """Requests a second, µs of processor a request, MB at the peak.  Every request must be answered with 200."""
    module, _, kind = TABLE[name].partition(":")
    transport = getattr(import_module(module), kind)(environment={}, ca_file=ca_file)
    left = load.requests

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            reply = await transport.send(f"{url}/chat/completions", HEADERS, BODY, 120.0)
            if not isinstance(reply, RawReply) or reply.status != 200:
                raise RuntimeError(str(reply))

    started_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*[worker() for _ in range(load.in_flight)])
    taken_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    await transport.close()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"per_s": load.requests / taken_s, "cpu_us": cpu_s / load.requests * 1e6, "peak_mb": peak_mb}


def measure(name: str, number: int, url: str, ca_file: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "bench.transports", name, str(number), url, ca_file]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


@contextmanager
def serving(load: Load) -> Iterator[tuple[str, str]]:
    """Yields the base URL and the certificate to trust, or an empty string."""
    if load.tls:
        with tls_server(load.latency) as found:
            yield found
    else:
        with server("--latency", load.latency) as url:
            yield url, ""


def main() -> None:
    allow_descriptors()
    for number, load in enumerate(LOADS):
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLE}
        with serving(load) as (url, ca_file):
            for _ in range(TURNS):
                for name in TABLE:
                    turns[name].append(measure(name, number, url, ca_file))
        how = "TLS" if load.tls else "plain"
        print(f"{load.in_flight:,} in flight, replies after {load.latency} s, {how}")
        for name, found in turns.items():
            middle = {key: median(one[key] for one in found) for key in found[0]}
            print(
                f"  {name:10} {middle['per_s']:8,.0f} requests/s  {middle['cpu_us']:6.1f} µs of processor a request  "
                f"{middle['peak_mb']:4.0f} MB",
                flush=True,
            )


def allow_descriptors() -> None:
    """Raises the soft limit on open files to the hard one; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        name, number, url, ca_file = sys.argv[1:]
        print(json.dumps(uvloop.run(send_all(name, url, LOADS[int(number)], ca_file or None))))
    else:
        main()
