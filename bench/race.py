"""Rowmill, its peers and the limit against one neutral server in one run: rounds of all of them, medians.

`wrk` stands for the limit: a client in C that reads nothing of what it gets.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import Any

from bench.command import rowmill, write_reviews
from bench.neutral import Neutral, neutral
from bench.results import FOLDER, ROOT, keep
from bench.transports import allow_descriptors

PEERS = Path(__file__).with_name("peers")
PINS = Path(__file__).with_name("requirements-peers.txt")
ROW_BYTES = 150
PEER_TIMEOUT_S = 300
WRK_S = 5
LOOP_ADDITIONS = 2_000_000
WRK_BODY = """wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = '{"model":"bench","messages":[{"role":"user","content":"Label this review: %s"}]}'
"""


@dataclass(frozen=True)
class Scenario:
    """`peers` maps scripts to the number of requests that each is given, so that none takes longer than the others.

    `numbered`: each reply has headers of its own.
    """

    name: str
    in_flight: int
    delay_ms: int
    rows: int
    peers: Mapping[str, int]
    tls: bool = False
    numbered: bool = False
    limit: bool = True


SCENARIOS = (
    Scenario("3,000 in flight, 200 ms", 3000, 200, 250_000, {}),
    Scenario("3,000 in flight, 200 ms, numbered replies", 3000, 200, 250_000, {}, numbered=True, limit=False),
    Scenario(
        "128 in flight, no delay",
        128,
        0,
        60_000,
        {
            "openai_gather": 1500,
            "aiohttp_gather": 8000,
            "langchain_abatch": 400,
            "litellm_gather": 400,
            "async_batch_llm_store": 600,
            "flexllm_batch": 4000,
        },
    ),
    Scenario(
        "2,000 in flight, 200 ms",
        2000,
        200,
        120_000,
        {"openai_gather": 3000, "aiohttp_gather": 20_000, "flexllm_batch": 6000},
    ),
    Scenario("1,000 in flight, 200 ms, TLS", 1000, 200, 100_000, {}, tls=True, limit=False),
)


def main(rounds: int = 3) -> None:
    """About three minutes a round on an idle machine."""
    allow_descriptors()
    python = peers_python()
    measured: dict[str, dict[str, list[dict[str, float]]]] = {one.name: {} for one in SCENARIOS}
    failures: dict[str, str] = {}
    with neutral() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for scenario in SCENARIOS:
            write_reviews(folder / f"{scenario.rows}.csv", scenario.rows, ROW_BYTES)
        for number in range(rounds):
            for scenario in SCENARIOS:
                for who, found in _round(scenario, server, folder, python, failures):
                    measured[scenario.name].setdefault(who, []).append(found)
                    print(f"round {number + 1}, {scenario.name}: {who} {found['per_s']:,.0f}/s", flush=True)
            rounds_of_tier = measured[SCENARIOS[0].name]["rowmill"]
            shown = {"scenarios": _medians(measured), "rounds_of_tier": rounds_of_tier, "failures": failures}
            keep("race", {"rounds": number + 1, **shown})


def _round(
    scenario: Scenario, server: Neutral, folder: Path, python: Path, failures: dict[str, str]
) -> Sequence[tuple[str, dict[str, float]]]:
    url = server.url(scenario.delay_ms, tls=scenario.tls, numbered=scenario.numbered)
    found = [("rowmill", _rowmill(scenario, url, server.ca_file, folder))]
    for peer, requests in scenario.peers.items():
        if peer in failures:
            continue
        try:
            found.append((peer, _peer(python, peer, url, requests, scenario.in_flight)))
        except (subprocess.SubprocessError, ValueError, IndexError) as fault:
            failures[peer] = str(fault)
    if scenario.limit:
        found.append(("wrk", _wrk(url, scenario.in_flight, folder)))
    return found


def _rowmill(scenario: Scenario, url: str, ca_file: str, folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        asked = ("-p", "Label this review: {{ text }}", "-m", "bench", "--url", url, "-o", f"{name}/out.jsonl")
        trusted = ("--ca-file", ca_file) if scenario.tls else ()
        flags = ("--in-flight", str(scenario.in_flight), "--json", "--quiet", *trusted)
        before_ms = _loop_ms()
        ran = rowmill("run", f"{scenario.rows}.csv", *asked, *flags, folder=folder)
        loop_ms = fmean((before_ms, _loop_ms()))
        result = ran.json()
        if result["counts"] != {"ok": scenario.rows}:
            raise RuntimeError(f"not every row was answered: {result['counts']}")
        size = Path(name, "out.jsonl.rowmill").stat().st_size
    return {
        "per_s": scenario.rows / result["seconds"],
        "cpu_us": ran.cpu_s / scenario.rows * 1e6,
        "peak_mb": ran.peak_mb,
        "bytes": size / scenario.rows,
        "loop_ms": loop_ms,
    }


def _loop_ms(times: int = 10) -> float:
    """Processor time of a loop that is always the same: how fast the machine is at the moment."""
    began_s = process_time()
    for _ in range(times):
        total = 0
        for number in range(LOOP_ADDITIONS):
            total += number & 7
    return (process_time() - began_s) / times * 1e3


def _peer(python: Path, peer: str, url: str, requests: int, in_flight: int) -> dict[str, float]:
    command = [str(python), f"{peer}.py", url, str(requests), str(in_flight)]
    ran = subprocess.run(
        command, cwd=PEERS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PEER_TIMEOUT_S, check=True
    )
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    if found["answers"] != requests:
        raise ValueError(f"{peer}: {found['answers']:.0f} of {requests} requests were answered")
    return found


def _wrk(url: str, in_flight: int, folder: Path) -> dict[str, float]:
    script = folder / "post.lua"
    script.write_text(WRK_BODY % ("." * ROW_BYTES))
    command = ["wrk", "-t1", f"-c{in_flight}", f"-d{WRK_S}s", "-s", str(script), f"{url}/chat/completions"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Requests/sec:\s*([\d.]+)", out)
    assert found is not None
    return {"per_s": float(found[1])}


def _medians(measured: Mapping[str, Mapping[str, list[dict[str, float]]]]) -> dict[str, Any]:
    """scenario -> who -> medians, and the ratio to Rowmill's as the median of the rounds' own ratios."""
    shown: dict[str, Any] = {}
    for scenario, everyone in measured.items():
        ours = [one["per_s"] for one in everyone.get("rowmill", ())]
        shown[scenario] = {}
        for who, turns in everyone.items():
            middle = {key: median(turn[key] for turn in turns) for key in turns[0]}
            ratios = [mine / turn["per_s"] for mine, turn in zip(ours, turns, strict=False)]
            shown[scenario][who] = {**middle, "rowmill_times": median(ratios)}
    return shown


def peers_python() -> Path:
    """The Python of the peers' environment, which is made where it is missing or its pins have changed."""
    folder = FOLDER.parent / "peers"
    python, stamp = folder / "bin" / "python", folder / "pins.txt"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        print("installing the peers into build/peers", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, cwd=ROOT)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(PINS)]
        subprocess.run(install, check=True)
        stamp.write_text(PINS.read_text())
    return python
