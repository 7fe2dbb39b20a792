"""Holds Python's cycle collector back while many rows pass through; must not know what is done with them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# Rows make no cycles, but thousands in flight look like a heap that grows: at the usual 700 new objects the
# collector walked over all of them again and again, for a sixth of the processor time.
FEWEST_NEW_OBJECTS = 100_000


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collects cycles rarely for as long as the context lasts; leaves a collector alone that is off or rarer still.

    Two runs in one process may overlap: the one that changed the threshold puts it back.
    """
    youngest, *older = gc.get_threshold()
    if not 0 < youngest < FEWEST_NEW_OBJECTS:
        yield
        return
    gc.set_threshold(FEWEST_NEW_OBJECTS, *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)
