"""A lane's figures as JSON: what the run file keeps of them, and what `--json` and `status` print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rowmill.records import LaneFigures


def lane_object(lane: LaneFigures) -> dict[str, Any]:
    """The figures by name, rounded to thousandths."""
    return {
        name: round(value, 3) if isinstance(value, float) else dict(value) if isinstance(value, Mapping) else value
        for name, value in ((field.name, getattr(lane, field.name)) for field in fields(lane))
    }
