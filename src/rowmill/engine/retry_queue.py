"""The rows of one lane that wait for their turn, the one due first in front.  It must not know what they wait for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from rowmill.core.replies.steps import RowState


class Entry(NamedTuple):
    """When a row is due, its order among those due at once, and the row."""

    due_s: float
    order: int
    state: RowState


class RetryQueue:
    """A heap, `entries`; rows that are due at the same time come out as they went in."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._order = count()

    @property
    def first_due_s(self) -> float | None:
        """When the first row is due, None where none waits."""
        return self.entries[0].due_s if self.entries else None

    def add(self, state: RowState, due_s: float) -> None:
        """Lets a row wait until `due_s`."""
        heapq.heappush(self.entries, Entry(due_s, next(self._order), state))

    def take_due(self, now: float) -> RowState | None:
        """Takes the first row out, where it is due."""
        if self.entries and self.entries[0].due_s <= now:
            return heapq.heappop(self.entries).state
        return None

    def take(self, may_go: Callable[[RowState], bool]) -> RowState | None:
        """Takes one row out that may go, due or not."""
        found = next((entry for entry in self.entries if may_go(entry.state)), None)
        if found is None:
            return None
        self.entries.remove(found)
        heapq.heapify(self.entries)
        return found.state

    def drain(self) -> list[Entry]:
        """Takes all rows out, in order."""
        entries, self.entries = sorted(self.entries, key=lambda entry: entry[:2]), []
        return entries
