"""Rowmill runs an LLM over every row of a data set."""

from __future__ import annotations

# Nothing is imported, not even `typing`: until the command has begun a Ctrl-C would end it in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowmill.api.mapping import amap, map
    from rowmill.api.result import Result
    from rowmill.api.running import arun, run
    from rowmill.errors import (
        ChangedError,
        JobError,
        LockedError,
        OutputError,
        RowError,
        RowmillError,
        RunFileError,
        SourceError,
        StoppedError,
        StoreFullError,
    )

__all__ = [
    "ChangedError",
    "JobError",
    "LockedError",
    "OutputError",
    "Result",
    "RowError",
    "RowmillError",
    "RunFileError",
    "SourceError",
    "StoppedError",
    "StoreFullError",
    "amap",
    "arun",
    "map",
    "run",
]

# Loaded when they are first asked for, so that importing the package costs next to nothing.
_MODULES: Mapping[str, str] = {
    "Result": "rowmill.api.result",
    "amap": "rowmill.api.mapping",
    "arun": "rowmill.api.running",
    "map": "rowmill.api.mapping",
    "run": "rowmill.api.running",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'rowmill' has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES.get(name, "rowmill.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
