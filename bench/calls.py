"""100,000 rows through `rowmill.map(rows, call=...)`: processor time a row, and memory beyond the result itself."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rowmill
from bench.results import keep

SMALL_ROWS, LARGE_ROWS = 10_000, 100_000


def blocking(row: int) -> None:
    """Returns at once."""


async def awaiting(row: int) -> None:
    """Returns at once."""


KINDS: Mapping[str, tuple[Callable[[int], Any], bool]] = {
    "function": (blocking, False),
    "coroutine": (awaiting, False),
    "coroutine with a run file": (awaiting, True),
}


def rows(number: int) -> Iterator[int]:
    """Rows that are there only one by one."""
    yield from range(number)


def main() -> None:
    """About five minutes: what is allocated is counted, which makes everything several times slower."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (call, is_stored) in KINDS.items():
            numbers = iter(range(9))

            def more(name: str = name, is_stored: bool = is_stored, numbers: Iterator[int] = numbers) -> dict[str, Any]:
                return {"run_file": Path(folder) / f"{name}{next(numbers)}.rowmill"} if is_stored else {}

            cpu_us = _cpu_us(call, more())
            small_mb, large_mb = (_beyond_mb(number, call, more()) for number in (SMALL_ROWS, LARGE_ROWS))
            found[name] = {"cpu_us": cpu_us, "small_mb": small_mb, "large_mb": large_mb}
            print(
                f"{name}: {cpu_us:.0f} µs of the processor a row; beyond the result {small_mb:.1f} MB at "
                f"{SMALL_ROWS:,} rows, {large_mb:.1f} MB at {LARGE_ROWS:,}",
                flush=True,
            )
    keep("calls", found)


def _cpu_us(call: Callable[[int], Any], options: dict[str, Any]) -> float:
    started = time.process_time()
    rowmill.map(rows(LARGE_ROWS), call=call, **options)
    return (time.process_time() - started) / LARGE_ROWS * 1e6


def _beyond_mb(number: int, call: Callable[[int], Any], options: dict[str, Any]) -> float:
    """The peak of what was allocated, without the list that is handed back."""
    gc.collect()
    tracemalloc.start()
    try:
        found = rowmill.map(rows(number), call=call, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - sys.getsizeof(found)) / 1e6


if __name__ == "__main__":
    main()
