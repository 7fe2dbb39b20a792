"""Writes docs/benchmarks.md and its plots from the measurements that are kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.race import LOOP_ADDITIONS, SCENARIOS, Scenario, peers_python
from bench.results import FOLDER, ROOT, kept

DOCS = ROOT / "docs"
NAMES = {
    "rowmill": "Rowmill, store on",
    "openai_gather": "OpenAI SDK, semaphore and gather",
    "aiohttp_gather": "aiohttp, semaphore and gather (stores nothing)",
    "langchain_abatch": "LangChain `abatch`",
    "litellm_gather": "LiteLLM, semaphore and gather",
    "async_batch_llm_store": "async-batch-llm, SQLite store",
    "flexllm_batch": "flexllm, checkpoint file",
    "wrk": "wrk, the limit (reads nothing)",
}
TIER, NUMBERED, BUSY, SLOW, TLS = SCENARIOS
Line = tuple[str, str, str, bool]

HEAD = """# Benchmarks

Written by `make bench`, which needs nginx with Lua, `wrk` and `openssl`
(on Debian: `apt-get install nginx-light libnginx-mod-http-lua wrk openssl`). Everything runs on one machine: one
nginx process that answers chat completions of about 600 bytes after a set delay (`bench/neutral/nginx.conf`), and
one client at a time. Each of {rounds} rounds measures all of them one after the other; figures are medians, ratios
are medians of the rounds' own ratios. Rowmill commits every reply to its run file and writes the output; its time is
the run's, its processor time that of the whole command with start and output.

Machine: {machine}. More load than cores means that other work took its part of the machine, and that
the figures are lower than an idle one's.
"""


def main() -> None:
    race, sizes = kept("race"), kept("sizes")
    if race is None and sizes is None:
        raise SystemExit("nothing is measured yet: python -m bench race sizes")
    parts = [HEAD.format(rounds="?" if race is None else race["rounds"], machine=_machine(race, sizes))]
    lines = [*_race_lines(race), *_sizes_lines(sizes)]
    parts.append(
        _table(
            ("what", "measured", "reach", ""), [(a, b, c, "✓" if ok else "**not reached**") for a, b, c, ok in lines]
        )
    )
    if race is not None:
        parts.append(_moments(race["rounds_of_tier"]))
        parts.append("![Requests a second, logarithmic](benchmarks.png)\n")
        parts += [_scenario(scenario, race) for scenario in SCENARIOS]
    if sizes is not None:
        resumed = f"A resume takes {sizes['resume_mb']:.0f} MB, an export {sizes['export_jsonl_mb']:.0f} MB (JSONL)"
        parts.append(f"{resumed} and {sizes['export_parquet_mb']:.0f} MB (Parquet).\n")
        parts.append("## Memory over time\n\n![Resident memory while rows run](memory.png)\n")
    if (DOCS / "hot-path.svg").exists():
        parts.append("## Where the time goes\n\n[Flame graph](hot-path.svg), made by `python -m bench flames`.\n")
    (DOCS / "benchmarks.md").write_text("\n".join(parts).rstrip() + "\n")
    _plot(race, sizes)


def _moments(rounds: Sequence[Mapping[str, float]]) -> str:
    """What processor time depends on, besides the work."""
    rows, loops = (_listed([f"{one[key]:.0f}" for one in rounds]) for key in ("cpu_us", "loop_ms"))
    return (
        f"Processor time depends on the moment, too: beside the rounds of {TIER.name}, whose rows took {rows} µs, one "
        f"and the same loop of {LOOP_ADDITIONS:,} additions in Python took {loops} ms.\n"
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _machine(*found: Mapping[str, Any] | None) -> str:
    for one in found:
        if one is not None:
            machine = one["machine"]
            load = " and ".join(str(other["machine"]["load"]) for other in found if other is not None)
            return f"{machine['cores']} cores, Python {machine['python']}, {one['at']}, load at the end {load}"
    return "nothing measured yet"


def _race_lines(race: Mapping[str, Any] | None) -> Iterator[Line]:
    if race is None:
        return
    tier, numbered, tls = (race["scenarios"][one.name]["rowmill"] for one in (TIER, NUMBERED, TLS))
    yield f"{TIER.name}: rows/s", f"{tier['per_s']:,.0f}", "11,250", tier["per_s"] >= 11_250
    yield f"{TIER.name}: µs of processor a row", f"{tier['cpu_us']:.0f}", "75", tier["cpu_us"] <= 75
    yield f"{NUMBERED.name}: µs of processor a row", f"{numbered['cpu_us']:.0f}", "75", numbered["cpu_us"] <= 75
    for scenario, least in (
        (BUSY, {"openai_gather": 25, "flexllm_batch": 8, "async_batch_llm_store": 30}),
        (SLOW, {"openai_gather": 40, "flexllm_batch": 10, "aiohttp_gather": 3}),
    ):
        found = race["scenarios"][scenario.name]
        for who, times in least.items():
            if who in found:
                ratio = found[who]["rowmill_times"]
                reach = f"{times}" + _beyond(scenario, times * found[who]["per_s"])
                yield f"{scenario.name}: times {_plain(who)}", f"{ratio:.1f}", reach, ratio >= times
    share = race["scenarios"][BUSY.name]["wrk"]["rowmill_times"]
    yield f"{BUSY.name}: share of wrk", f"{share:.1%}", "12%", share >= 0.12
    yield f"{TLS.name}: rows/s", f"{tls['per_s']:,.0f}", "4,500", tls["per_s"] >= 4_500


def _beyond(scenario: Scenario, per_s: float) -> str:
    """Says so where a peer is so fast that a multiple of it is more than the replies' delay leaves room for."""
    if not scenario.delay_ms or per_s <= _most_per_s(scenario):
        return ""
    return f" (here {per_s:,.0f} rows/s, more than there can be)"


def _sizes_lines(sizes: Mapping[str, Any] | None) -> Iterator[Line]:
    if sizes is None:
        return
    small, large = sizes["small"], sizes["large"]
    grown = large["peak_mb"] - small["peak_mb"]
    yield f"peak memory, {large['rows']:,} rows", f"{large['peak_mb']:.0f} MB", "150 MB", large["peak_mb"] <= 150
    yield f"more than at {small['rows']:,} rows", f"{grown:.0f} MB", "10 MB", grown <= 10
    yield "run file, bytes a row", f"{large['run_file_bytes_a_row']:.0f}", "450", large["run_file_bytes_a_row"] <= 450
    for key, what, most_s in (
        ("resume_s", "resume of 1,000,000 finished rows, to the first request", 15),
        ("export_jsonl_s", "export of 1,000,000 rows, JSONL", 10),
        ("export_parquet_s", "export of 1,000,000 rows, Parquet", 15),
    ):
        yield what, f"{sizes[key]:.1f} s", f"{most_s} s", sizes[key] <= most_s
    for key, what, most_ms in (("import_ms", "`import rowmill`", 150), ("help_ms", "`rowmill --help`", 300)):
        yield what, f"{sizes[key]:.0f} ms", f"{most_ms} ms", sizes[key] <= most_ms


def _scenario(scenario: Scenario, race: Mapping[str, Any]) -> str:
    found = race["scenarios"][scenario.name]
    order = sorted(found, key=lambda who: -float(found[who]["per_s"]))
    rows = []
    for who in order:
        one = found[who]
        peak = f"{one['peak_mb']:,.0f}" if "peak_mb" in one else ""
        times = "" if who == "rowmill" else f"{one['rowmill_times']:.2f}"
        rows.append((NAMES[who], f"{one['per_s']:,.0f}", times, peak))
    missing = [f"{NAMES[who]} failed: {why}" for who, why in race["failures"].items() if who in scenario.peers]
    table = _table(("who", "requests/s", "Rowmill does times", "peak MB"), rows)
    notes = [_most_words(scenario)] if scenario.delay_ms else []
    if scenario.numbered:
        notes.append("Each reply has headers of its own, as hosted APIs send them: Rowmill parses them all.\n")
    return "\n".join([f"## {scenario.name}\n", *notes, table, *missing])


def _most_words(scenario: Scenario) -> str:
    most = f"{_most_per_s(scenario):,.0f}"
    return f"Replies come after {scenario.delay_ms} ms, so {most} requests/s are the most there can be.\n"


def _most_per_s(scenario: Scenario) -> float:
    return scenario.in_flight / scenario.delay_ms * 1000


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|" + "|".join("---" for _ in head) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _plain(who: str) -> str:
    return NAMES[who].replace("`", "")


def _plot(race: Mapping[str, Any] | None, sizes: Mapping[str, Any] | None) -> None:
    described: dict[str, Any] = {"bars": [], "memory": []}
    if race is not None:
        for scenario in SCENARIOS:
            found = race["scenarios"][scenario.name]
            bars = {_plain(who): one["per_s"] for who, one in found.items()}
            described["bars"].append({"title": scenario.name, "bars": bars})
    if sizes is not None:
        described["memory"] = [
            {"title": f"{sizes[size]['rows']:,} rows", "mb": sizes[size]["memory_mb"]} for size in ("large", "small")
        ]
    path = FOLDER / "plots.json"
    path.write_text(json.dumps(described))
    script = Path(__file__).with_name("peers") / "plot.py"
    subprocess.run([str(peers_python()), str(script), str(path), str(DOCS)], check=True)
