"""Figures in words: numbers, durations and shares as every display writes them; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rowmill.records import GOOD, Figures, LaneFigures

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` without control characters: what a server says must not steer the terminal."""
    return _CONTROL.sub("\ufffd", text)


def duration(seconds: float | None) -> str:
    """`67 ms`, `1.8 s`, `42 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def rate(per_s: float) -> str:
    """`1,234`, `45.6`, `0.12`, `0`: three figures that matter."""
    if per_s == 0:
        return "0"
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"


def share(part: float) -> str:
    """`12 %`, `99.1 %`; never `100 %` unless all, never `0 %` unless none."""
    if part in (0, 1):
        return f"{part:.0%}".replace("%", " %")
    return f"{min(max(part * 100, 0.1), 99.9):.1f} %"


def money(usd: float | None) -> str:
    """`12.34 USD`, more digits for small sums, `unknown` for None."""
    if usd is None:
        return "unknown"
    return f"{usd:,.2f} USD" if usd >= 1 or usd == 0 else f"{usd:.4g} USD"


def cost_words(figures: Figures) -> str:
    """The cost so far; where it is unknown, the part of it that is known."""
    if figures.cost_usd is None and figures.known_usd > 0:
        return f"unknown (at least {money(figures.known_usd)})"
    return money(figures.cost_usd)


def _projected(figures: Figures) -> str:
    """What all rows will cost if the rest costs as much as those done."""
    if not figures.cost_usd or not figures.total or not figures.done or figures.done >= figures.total:
        return ""
    return f", about {money(figures.cost_usd * figures.total / figures.done)} in all"


def good_share(figures: Figures) -> float | None:
    """Rows that ended well of all that ended; None before the first."""
    if not figures.done:
        return None
    return sum(figures.counts.get(status, 0) for status in GOOD) / figures.done


def rows_words(figures: Figures) -> str:
    """`1,234 of 10,000 rows (12 %)`, or `1,234 rows` while the total is unknown."""
    done = figures.done
    if figures.total is None:
        return f"{done:,} rows"
    part = f" ({int(100 * done / figures.total)} %)" if figures.total else ""
    return f"{done:,} of {figures.total:,} rows{part}"


def causes(counts: Mapping[str, int]) -> str:
    """`3 timeout, 2 server`; empty for none."""
    ordered = sorted(counts.items(), key=lambda cause: (-cause[1], cause[0]))
    return ", ".join(f"{number:,} {cause.replace('_', ' ')}" for cause, number in ordered if number)


def progress_line(figures: Figures) -> str:
    """The plain line: rows, rate, ETA, share of good rows, and what lanes wait for."""
    words = [rows_words(figures), f"{rate(figures.rows_per_s)} rows/s"]
    if figures.eta_s is not None:
        words.append(f"ETA {duration(figures.eta_s)}")
    good = good_share(figures)
    if good is not None:
        words.append(f"{share(good)} good")
    words += [f"{lane.name} {lane.why}" for lane in figures.lanes if lane.why]
    return printable(", ".join(words))


def figure_lines(figures: Figures) -> list[str]:
    """The live block without its bar: rates, tokens and cost, then a line a lane."""
    good = good_share(figures)
    first = [f"{rate(figures.rows_per_s)} rows/s", f"ETA {duration(figures.eta_s)}"]
    if good is not None:
        first.append(f"{share(good)} good")
    tokens_in = sum(lane.input_tokens_per_s for lane in figures.lanes)
    tokens_out = sum(lane.output_tokens_per_s for lane in figures.lanes)
    second = [
        f"tokens/s {rate(tokens_in)} in, {rate(tokens_out)} out",
        f"tokens {figures.input_tokens:,} in, {figures.output_tokens:,} out",
        f"cost {cost_words(figures)}{_projected(figures)}",
    ]
    lines = [" · ".join(first), " · ".join(second)]
    for lane in figures.lanes:
        lines += lane_lines(lane, with_tokens=len(figures.lanes) > 1)
    return [printable(line) for line in lines]


def lane_lines(lane: LaneFigures, *, with_tokens: bool) -> list[str]:
    """One lane: in flight of its limit and its rates; where something waits, a second line with what and why."""
    words = [f"{lane.name}: in flight {lane.in_flight} of {lane.limit}{', auto' if lane.adapts else ''}"]
    words.append(f"{rate(lane.requests_per_s)} requests/s")
    if lane.success_rate is not None:
        words.append(f"{share(lane.success_rate)} ok")
    if with_tokens:
        words.append(f"tokens/s {rate(lane.input_tokens_per_s)} in, {rate(lane.output_tokens_per_s)} out")
    waits = [f"{lane.waiting:,} waiting for a retry"] if lane.waiting else []
    waits += [lane.why] if lane.why else []
    return [" · ".join(words), *([f"  {' · '.join(waits)}"] if waits else [])]
