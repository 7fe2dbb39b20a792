"""Draws the plots of docs/benchmarks.md; here because matplotlib is only in the peers' environment."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

WATCH_S = 0.5


def draw_bars(scenarios, path: Path) -> None:
    heights = [len(one["bars"]) + 1.5 for one in scenarios]
    figure, all_axes = pyplot.subplots(
        len(scenarios), 1, figsize=(9, 0.42 * sum(heights)), height_ratios=heights, sharex=True
    )
    for axes, one in zip(all_axes, scenarios, strict=True):
        bars = sorted(one["bars"].items(), key=lambda bar: bar[1])
        colours = ["#d9661f" if name.startswith("Rowmill") else "#8fa3b0" for name, _ in bars]
        shown = axes.barh([name for name, _ in bars], [value for _, value in bars], color=colours)
        axes.bar_label(shown, labels=[f" {value:,.0f}" for _, value in bars])
        axes.set_xscale("log")
        axes.set_xlim(10, 200_000)
        axes.set_title(one["title"], loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[-1].set_xlabel("requests a second")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def draw_memory(runs, path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(9, 3))
    for run in runs:
        axes.plot([sample * WATCH_S for sample in range(len(run["mb"]))], run["mb"], label=run["title"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("resident MB")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


described = json.loads(Path(sys.argv[1]).read_text())
if described["bars"]:
    draw_bars(described["bars"], Path(sys.argv[2], "benchmarks.png"))
if described["memory"]:
    draw_memory(described["memory"], Path(sys.argv[2], "memory.png"))
