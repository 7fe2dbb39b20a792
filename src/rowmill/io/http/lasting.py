"""Imports a library in a thread that lasts as long as the process; must not know what the library does."""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module
from types import ModuleType


def import_for_good(name: str) -> ModuleType:
    """The module `name`.  Raises what its import raises.

    pyreqwest's allocator takes the thread that loads it for the process's main thread, and the process crashes in the
    next thread that uses it once that one has ended; a run's own thread ends with the run.
    """
    loaded = threading.Event()

    def hold() -> None:
        with contextlib.suppress(Exception):  # the caller's own import raises it again
            import_module(name)
        loaded.set()
        threading.Event().wait()

    threading.Thread(target=hold, name="rowmill-library", daemon=True).start()
    loaded.wait()
    return import_module(name)
