"""What every peer asks, and how it reports; imported by the scripts beside it."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

Ask = Callable[[str, list[str], int], Coroutine[Any, Any, int]]


def report(ask: Ask) -> None:
    """Runs `ask(url, prompts, in flight)`, which returns the number of answers, and prints requests a second."""
    url, requests, in_flight = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    prompts = [f"Label this review: [[row-{number}]] it works very well".ljust(160, ".") for number in range(requests)]
    started_s = time.perf_counter()
    answers = asyncio.run(ask(url, prompts, in_flight))
    seconds = time.perf_counter() - started_s
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_us = (usage.ru_utime + usage.ru_stime) / requests * 1e6
    shown = {"answers": answers, "per_s": answers / seconds, "cpu_us": cpu_us, "peak_mb": usage.ru_maxrss / 1024}
    print(json.dumps(shown))
