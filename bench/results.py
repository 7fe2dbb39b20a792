"""Where measurements are kept between their making and the report: a JSON file each under `build/bench/`."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"


def keep(name: str, found: dict[str, Any]) -> None:
    """Writes one measurement with the machine's state beside it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 1)}
    stamped = {**found, "machine": machine, "at": time.strftime("%Y-%m-%d %H:%M")}
    (FOLDER / f"{name}.json").write_text(json.dumps(stamped, indent=1))


def kept(name: str) -> dict[str, Any] | None:
    """A measurement made before, None where there is none."""
    path = FOLDER / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found
