"""How long replies of 10 MB hold whoever reads them: `python -m bench.large_replies`.

What takes longer than 20 ms leaves the loop (`engine/worker.py`, LARGE_BYTES).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from rowmill.core.replies.answers import compile_schema, read_answer
from rowmill.core.replies.failures import classify
from rowmill.providers.openai import read_completion
from rowmill.records import RawReply, Reply

BYTES = 10_000_000
TYPED = compile_schema({"label": "string"})


def completion(text: str) -> bytes:
    """A chat completion with this content."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()


def ms(work: Callable[[], object]) -> float:
    """The least of three."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times) * 1e3


def reading(text: str, *, typed: bool) -> Callable[[], object]:
    """Reads a completion of this text as a worker would."""
    raw = RawReply(200, {}, completion(text), 1.0)

    def work() -> object:
        read = read_completion(raw)
        return read_answer(read, TYPED if typed else None) if isinstance(read, Reply) else read

    return work


SHAPES: dict[str, Callable[[], object]] = {
    "a text": reading("x" * BYTES, typed=False),
    "a thought and a text": reading(f"<think>{'y' * BYTES}</think>x", typed=False),
    "a typed answer": reading(json.dumps({"label": "x" * BYTES}), typed=True),
    "a typed answer in a fence": reading(f"```json\n{json.dumps({'label': 'x' * BYTES})}\n```", typed=True),
    "spaces, no answer": reading(" " * BYTES, typed=True),
    "brackets, no answer": reading("[" * BYTES, typed=True),
    "an error page": lambda: classify(502, {}, b"<html>" + b"<p>no</p>" * (BYTES // 9), now=0.0),
}

if __name__ == "__main__":
    for name, work in SHAPES.items():
        print(f"{name:28} {ms(work):7.1f} ms")
