"""The one place where the parts meet: a job becomes source, lanes, store, engine, sinks and observers.

Each function here stands for one thing a user can ask for; the command line and the Python API call nothing else.
"""

from __future__ import annotations

from rowmill.runner.commands.arun import arun
from rowmill.runner.commands.check import CheckReport, check
from rowmill.runner.commands.forecast import Agreement
from rowmill.runner.commands.purge import purge, purged
from rowmill.runner.commands.quote import quote_job
from rowmill.runner.commands.resume import resume
from rowmill.runner.commands.retry import retry
from rowmill.runner.commands.run import run
from rowmill.runner.commands.status import rows, status
from rowmill.runner.commands.tune import TuneReport, TuneRules, tune
from rowmill.runner.maps.prompt_map import MapRules, MapRun, prepared_map
from rowmill.runner.output.exporting import ExportRules, export

__all__ = [
    "Agreement",
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
    "purge",
    "purged",
    "quote_job",
    "resume",
    "retry",
    "rows",
    "run",
    "status",
    "tune",
]
