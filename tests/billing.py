"""A server that bills at worst what the bounds allow, and tells what it likes of it; bodies to send to it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

IMAGE_TOKENS = 900
MAX_TOKENS = 40
ABSURD: tuple[Any, ...] = (
    None,
    {},
    {"prompt_tokens": -5, "completion_tokens": -5},
    {"prompt_tokens": 10**20, "completion_tokens": 1},
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 2},
    {"prompt_tokens": 1.5, "completion_tokens": "many"},
    {"prompt_tokens": None, "completion_tokens": 4},
)


class Price(NamedTuple):
    """USD a token."""

    input: float
    output: float

    def usd(self, input_tokens: int, output_tokens: int) -> float:
        return input_tokens * self.input + output_tokens * self.output

    def object(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "unit": "token", "image_tokens": IMAGE_TOKENS}


class Billed(NamedTuple):
    """One request: what it may cost at most, what it does cost, and what the reply says; no reply is a broken one."""

    most_usd: float
    usd: float
    status: int
    reply: bytes | None


def body(chance: random.Random, number: int) -> dict[str, Any]:
    """A body of text, in a third of cases with images: behind an address, or by themselves."""
    text = {"type": "text", "text": f"[[row-{number}]] " + "a" * chance.randint(0, 400)}
    parts: list[dict[str, Any]] = [text]
    if chance.random() < 0.3:
        urls = ["https://example.org/a.png", "data:image/png;base64," + "A" * chance.randint(10, 3000)]
        parts += [{"type": "image_url", "image_url": {"url": chance.choice(urls)}} for _ in range(chance.randint(1, 3))]
    more: dict[str, Any] = {"n": chance.randint(1, 3)} if chance.random() < 0.2 else {}
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": chance.randint(1, MAX_TOKENS), **more}


def without_bound(number: int) -> dict[str, Any]:
    """A body that a budget must never send."""
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    text = {"type": "text", "text": f"[[row-{number}]]"}
    return {"messages": [{"role": "user", "content": [text, sound]}], "max_tokens": 1}


def most_tokens(content: bytes) -> tuple[int, int]:
    """The bounds of a body, reckoned anew: a token a byte but for images, and all the answers that it asks for."""
    asked: Mapping[str, Any] = json.loads(content)
    parts = asked["messages"][0]["content"]
    assert all(part["type"] in ("text", "image_url") for part in parts), "sent without a bound"
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    spelled = sum(len(url) for url in urls if url.startswith("data:"))
    return len(content) - spelled + IMAGE_TOKENS * len(urls), asked["max_tokens"] * asked.get("n", 1)


def bill(price: Price, content: bytes, chance: random.Random) -> Billed:
    """What becomes of a request: refused for nothing, or billed, told or not."""
    most_in, most_out = most_tokens(content)
    most_usd = price.usd(most_in, most_out)
    fate = chance.random()
    if fate < 0.08:
        return Billed(most_usd, 0.0, chance.choice([429, 500]), b'{"error": {"message": "no"}}')
    at_worst = chance.random() < 0.5
    read = most_in if at_worst else chance.randint(1, most_in)
    written = most_out if at_worst else chance.randint(1, most_out)
    usd = price.usd(read, written)
    if fate < 0.16:
        return Billed(most_usd, usd, 0, None)
    usage: Any = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if fate < 0.3:
        usage = chance.choice(ABSURD)
    choice = {"message": {"content": "yes"}, "finish_reason": "stop"}
    reply = json.dumps({"choices": [choice], "usage": usage}).encode()
    return Billed(most_usd, usd, 200, b"<html>" if fate > 0.97 else reply)
