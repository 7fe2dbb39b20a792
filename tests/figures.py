"""Figures and results for tests, with values that can be told apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rowmill.errors import StopReason
from rowmill.records import Figures, LaneFigures, Result

LANE = LaneFigures(
    name="vllm/m",
    in_flight=7,
    limit=20,
    adapts=False,
    waiting=0,
    why=None,
    requests=1240,
    failures=6,
    rows_per_s=45.6,
    requests_per_s=46.0,
    success_rate=0.99,
    input_tokens_per_s=900.0,
    output_tokens_per_s=90.0,
    retries={"timeout": 3},
    throttles={},
)

FIGURES = Figures(
    total=10_000,
    counts={"failed": 11, "ok": 1_223},
    session_rows=1_234,
    elapsed_s=27.06,
    rows_per_s=45.6,
    eta_s=192.0,
    requests=1_240,
    input_tokens=24_680,
    output_tokens=2_468,
    cost_usd=None,
    latency_s={"p50": 0.21, "p95": 0.5, "p99": 1.25},
    retries={"server": 2, "timeout": 3},
    throttles={},
    lanes=(LANE,),
)


def figures(**changes: Any) -> Figures:
    return replace(FIGURES, **changes)


def lane(**changes: Any) -> LaneFigures:
    return replace(LANE, **changes)


def result(**changes: Any) -> Result:
    whole = Result(
        reason=StopReason.FINISHED,
        exit_code=0,
        message="",
        figures=figures(total=4, counts={"ok": 4}),
        output="o.jsonl",
        failures=None,
        run_file="o.jsonl.rowmill",
    )
    return replace(whole, **changes)
