"""How the suite is divided: which slow tests take part, what stays on one worker, what has the machine to itself.

`slow` marks what takes its time: a share of it, chosen by a seed, takes part (`make test`: a tenth).  `alone` marks
what times itself.  Tests of one service share a worker, so that the service is started once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def chosen(node_ids: Sequence[str], share: float, seed: str) -> frozenset[str]:
    """The share of the tests, the same ones for the same seed wherever they run."""
    wanted = math.ceil(len(node_ids) * share)
    return frozenset(sorted(node_ids, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:wanted])


def service_of(item: pytest.Item) -> str | None:
    """The service that a test needs, by its fixtures or by a parameter of that name."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = [*getattr(item, "fixturenames", ()), *(str(value) for value in parameters.values())]
    if "postgresql" in names:
        return "postgresql"
    return "s3" if any(name in ("object_store", "bucket", "s3") for name in names) else None


class Turns:
    """Locks that all workers of a session share: many tests at once, or one that is alone."""

    def __init__(self, session: str) -> None:
        folder = Path(tempfile.gettempdir())
        self._paths = [folder / f"rowmill-tests-{session}-{name}" for name in ("entrance", "machine")]

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        with open(self._paths[0], "a") as entrance, open(self._paths[1], "a") as machine:
            # Whoever waits to be alone keeps the entrance, else the others would take turns for ever.
            fcntl.flock(entrance, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(entrance, fcntl.LOCK_UN)
            yield

    def remove(self) -> None:
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
