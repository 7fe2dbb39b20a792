"""What `pyreqwest` alone carries: workers in a loop, one fixed body, nothing stored."""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop
from pyreqwest.client import ClientBuilder

BODY = b'{"model":"sim","messages":[{"role":"user","content":"Label this review: it works very well, I like it"}]}'


async def main(url: str, requests: int, in_flight: int) -> float:
    """Requests a second."""
    client = ClientBuilder().no_proxy().build()
    left = requests

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            request = client.post(url + "/chat/completions").header("content-type", "application/json")
            response = await request.body_bytes(BODY).build().send()
            await response.bytes()

    started = time.perf_counter()
    await asyncio.gather(*[worker() for _ in range(in_flight)])
    return requests / (time.perf_counter() - started)


if __name__ == "__main__":
    print(uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
