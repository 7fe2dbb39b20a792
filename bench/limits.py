"""The engine against limits, outages and queues, held to the simulator's own counters; takes about ten minutes."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.command import rowmill, write_reviews
from bench.server import server


def counters(url: str) -> Mapping[str, Any]:
    """What the simulator saw."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/counters") as reply:
        seen: Mapping[str, Any] = json.load(reply)
    return seen


def trial(rows: int, simulated: Sequence[str], *options: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """One run against a simulator of its own: (result, counters)."""
    with server(*simulated) as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reviews(folder / "in.csv", rows)
        command = ("run", "in.csv", "-p", "Label this review: {{ text }}", "-m", "sim", "--url", url, "-o", "out.jsonl")
        ran = rowmill(*command, "--json", "--quiet", *options, folder=folder)
        return ran.json(), counters(url)


def show(title: str, result: Mapping[str, Any], seen: Mapping[str, Any], **more: object) -> None:
    """One line of JSON a scenario."""
    kept = {name: seen[name] for name in ("requests", "answers", "peak_in_flight", "peak_per_second")}
    print(json.dumps({"scenario": title, "counts": result["counts"], "seconds": result["seconds"], **kept, **more}))
    sys.stdout.flush()


def rates() -> None:
    """600 requests a minute: stated, announced, told by nobody."""
    for title, simulated, options in (
        ("RPM stated", ["--dialect", "none"], ["--rpm", "600"]),
        ("RPM in the headers", ["--dialect", "openai"], []),
        ("RPM told by nobody", ["--dialect", "none"], []),
    ):
        result, seen = trial(1500, ["--rpm", "600", "--latency", "0.1-0.3", *simulated], *options)
        refused = seen["answers"].get("429", 0)
        used = 1500 / (600 * result["seconds"] / 60)
        show(title, result, seen, refused_share=round(refused / seen["requests"], 4), used_share=round(used, 3))


def tokens() -> None:
    """20,000 tokens a minute, stated."""
    result, seen = trial(400, ["--tpm", "20000", "--latency", "0.1-0.3", "--dialect", "none"], "--tpm", "20000")
    show("TPM stated", result, seen, peak_tokens_in_window=seen["peak_tokens_in_window"])


def queue() -> None:
    """64 slots that queue: `auto` beside fixed 64."""
    simulated = ["--slots", "64", "--latency", "lognormal:0.5,0.3"]
    auto, seen = trial(8000, simulated)
    fixed, _ = trial(8000, simulated, "--in-flight", "64")
    lane = auto["lanes"][0]
    p95 = auto["latency_s"]["p95"] / fixed["latency_s"]["p95"]
    share = fixed["seconds"] / auto["seconds"]
    show("64 slots, auto", auto, seen, limit=lane["limit"], of_pinned=round(share, 3), p95_to_pinned=round(p95, 2))


def trouble() -> None:
    """A storm of 429s, a server that is gone, poison rows."""
    result, seen = trial(3000, ["--latency", "0.2", "--outage", "3:33:429"], "--in-flight", "20")
    show("429 to everything for 30 s", result, seen)
    result, seen = trial(3000, ["--latency", "0.2", "--outage", "3:33:refuse"], "--in-flight", "20", "--attempts", "1")
    show("server gone for 30 s, attempts 1", result, seen)
    for step in ("429", "reset", "403"):
        result, seen = trial(1000, ["--latency", "0.05", "--script", f"row-500:{step}..."], "--in-flight", "20")
        show(f"one row always {step}", result, seen)


def embedded(pairs: int = 3) -> None:
    """The embedded model: `auto` beside fixed values, interleaved."""
    reviews = str(Path(__file__).resolve().parent.parent / "examples" / "reviews.yaml")
    speeds: dict[str, list[float]] = {}
    for _ in range(pairs):
        for limit in ("auto", "6", "8", "12"):
            with tempfile.TemporaryDirectory() as name:
                command = ("run", reviews, "-o", f"{name}/out.jsonl", "--in-flight", limit, "--json", "--quiet")
                result = rowmill(*command, folder=Path(name)).json()
                speeds.setdefault(limit, []).append(result["rows"] / result["seconds"])
    print(json.dumps({"scenario": "embedded", "rows_per_s": {k: statistics.median(v) for k, v in speeds.items()}}))


def main() -> None:
    rates()
    tokens()
    queue()
    trouble()
    embedded()


if __name__ == "__main__":
    main()
