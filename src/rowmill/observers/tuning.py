"""What `tune` measured, as a table, a plot and JSON; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rowmill.core.measures.tuning import Advice, Measured
from rowmill.observers.wording import duration, rate, share

if TYPE_CHECKING:
    from rich.table import Table

BAR_CHARS = 48
EIGHTHS = " \N{LEFT ONE EIGHTH BLOCK}\N{LEFT ONE QUARTER BLOCK}\N{LEFT THREE EIGHTHS BLOCK}\N{LEFT HALF BLOCK}" + (
    "\N{LEFT FIVE EIGHTHS BLOCK}\N{LEFT THREE QUARTERS BLOCK}\N{LEFT SEVEN EIGHTHS BLOCK}"
)
FULL = "\N{FULL BLOCK}"
CHOSEN = " \N{LEFTWARDS ARROW} recommended"


def step_line(step: Measured) -> str:
    """One step as it ends."""
    words = f"in flight {step.in_flight}: {rate(step.rows_per_s)} rows/s, p95 {_latency(step.p95_s)}"
    if step.throttles:
        words += f", {share(step.throttled_share)} throttled"
    return words + (f", {share(step.failed_share)} failed" if step.failures else "")


def table(steps: Sequence[Measured], advice: Advice | None) -> Table:
    """A line a step, by rising in-flight."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for name in ("in flight", "rows", "rows/s", "tokens/s", "p50", "p95", "p99", "failed", "throttled"):
        made.add_column(name, justify="right", no_wrap=True)
    for step in sorted(steps):
        made.add_row(
            str(step.in_flight),
            f"{step.rows:,}",
            rate(step.rows_per_s),
            rate(step.tokens_per_s),
            *(_latency(seconds) for seconds in (step.p50_s, step.p95_s, step.p99_s)),
            share(step.failed_share),
            share(step.throttled_share),
            style="bold" if advice is not None and step.in_flight == advice.in_flight else None,
        )
    return made


def plot_lines(steps: Sequence[Measured], advice: Advice | None) -> list[str]:
    """Bars of rows/s over in-flight."""
    best = max((step.rows_per_s for step in steps), default=0.0)
    lines = ["rows/s by requests in flight"]
    for step in sorted(steps):
        eighths = round(8 * BAR_CHARS * step.rows_per_s / best) if best else 0
        bar = FULL * (eighths // 8) + EIGHTHS[eighths % 8].strip()
        chosen = CHOSEN if advice is not None and step.in_flight == advice.in_flight else ""
        lines.append(f"{step.in_flight:>6} {bar} {rate(step.rows_per_s)}{chosen}")
    return lines


def advice_words(advice: Advice) -> str:
    """`in_flight 64, timeout_s 10, attempts 3`."""
    return ", ".join(f"{name} {value}" for name, value in advice._asdict().items())


def report_object(steps: Sequence[Measured], advice: Advice | None, message: str, run_file: str) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "steps": [_step_object(step) for step in steps],
        "recommended": None if advice is None else advice._asdict(),
        "ended": message,
        "run_file": run_file,
    }


def _step_object(step: Measured) -> dict[str, Any]:
    return {
        "in_flight": step.in_flight,
        "rows": step.rows,
        "seconds": round(step.seconds, 3),
        "rows_per_s": round(step.rows_per_s, 3),
        "tokens_per_s": round(step.tokens_per_s, 3),
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "latency_s": {"p50": step.p50_s, "p95": step.p95_s, "p99": step.p99_s},
        "requests": step.requests,
        "failed_share": round(step.failed_share, 4),
        "throttled_share": round(step.throttled_share, 4),
    }


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)
