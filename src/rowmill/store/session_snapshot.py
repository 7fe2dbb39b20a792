"""What the run file keeps of how a session stands, for `status` to show it from another process."""

from __future__ import annotations

from typing import Any

from rowmill.core.measures.lane_object import lane_object
from rowmill.records import Figures


def snapshot_object(figures: Figures) -> dict[str, Any]:
    """The column `snapshot` of the table sessions, JSON-ready."""
    return {
        "total": figures.total,
        "rows_per_s": round(figures.rows_per_s, 3),
        "eta_s": None if figures.eta_s is None else round(figures.eta_s, 1),
        "lanes": [lane_object(lane) for lane in figures.lanes],
    }
