"""The one place where the parts meet: a job becomes source, lanes, store, engine, sinks and observers.

Each function here stands for one thing a user can ask for; the command line and the Python API call nothing else.
"""

from __future__ import annotations

from rowmill.runner.awaited import arun
from rowmill.runner.check import CheckReport, check
from rowmill.runner.exporting import ExportRules, export
from rowmill.runner.looking import rows, status
from rowmill.runner.mapping import MapRules, MapRun, prepared_map
from rowmill.runner.quoting import quote_job
from rowmill.runner.running import retry, run
from rowmill.runner.tune import TuneReport, TuneRules, tune

__all__ = [
    "CheckReport",
    "ExportRules",
    "MapRules",
    "MapRun",
    "TuneReport",
    "TuneRules",
    "arun",
    "check",
    "export",
    "prepared_map",
    "quote_job",
    "retry",
    "rows",
    "run",
    "status",
    "tune",
]
