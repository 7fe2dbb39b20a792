"""A flame graph of the hot path, by py-spy from the peers' environment."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from bench.command import environment, write_reviews
from bench.neutral import neutral
from bench.race import SCENARIOS, peers_python
from bench.results import ROOT
from bench.transports import allow_descriptors


def main() -> None:
    """Writes docs/hot-path.svg."""
    allow_descriptors()
    scenario = SCENARIOS[0]
    spy = peers_python().with_name("py-spy")
    with neutral() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reviews(folder / "in.csv", scenario.rows)
        picture = folder / "flames.svg"
        recorded = [str(spy), "record", "-f", "flamegraph", "-o", str(picture), "-r", "200", "--"]
        asked = ["-p", "Label this review: {{ text }}", "-m", "bench", "--url", server.url(scenario.delay_ms)]
        flags = ["--in-flight", str(scenario.in_flight), "--quiet"]
        run = [sys.executable, "-m", "rowmill", "run", "in.csv", *asked, *flags]
        subprocess.run([*recorded, *run], check=True, cwd=folder, env=environment())
        (ROOT / "docs" / "hot-path.svg").write_text(titled(picture.read_text(), scenario.name))


def titled(picture: str, shown: str) -> str:
    """The picture under the name of what it shows: py-spy's title is its own command line, paths and all."""
    named, titles = re.subn(r'(<text id="title"[^>]*>)[^<]*', rf"\g<1>Rowmill, {escape(shown)}", picture)
    if titles != 1:
        raise SystemExit(f"the picture has {titles} titles, where one was to be replaced; py-spy draws otherwise now")
    return named
