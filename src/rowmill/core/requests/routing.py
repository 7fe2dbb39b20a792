"""Assigns rows to lanes: by their index, by an expression, or to whichever is free.

There is one lane for each endpoint of the job, in the same order.  It must not know whether a lane works: which other
one takes its rows over in trouble is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rowmill.errors import JobError


@dataclass(frozen=True, slots=True)
class Route:
    """What one endpoint takes: the next `take` rows, rows for which `when` holds, or (neither) any that are left.

    `when` raises JobError for a row on which it fails.
    """

    take: int | None = None
    when: Callable[[Mapping[str, object]], bool] | None = None

    @property
    def is_open(self) -> bool:
        return self.take is None and self.when is None


class RowRouter(Protocol):
    """Says which lane each row is assigned to, and divides the rows into partitions."""

    @property
    def is_open(self) -> bool:
        """Whether every row is for whichever lane is free."""

    def lane_partitions(self) -> list[int | None]:
        """For each lane the partition that it takes rows from: one named by its own index, None for the shared one."""

    def partitions(self) -> Mapping[int | None, Partition]:
        """Each row is in exactly one of these; rows that no lane takes are in the first, to fail there."""

    def span(self, partition: int | None) -> tuple[int, int] | None:
        """The indices [first, end) of rows that a partition may hold; None where that depends on the rows."""

    def assigned_lane(self, index: int, values: Mapping[str, object]) -> int | None:
        """The lane that a row is assigned to, None for whichever is free; raises JobError where there is none."""


class Router:
    """The routes of a job's endpoints, in order: the first that claims a row has it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._spans: list[tuple[int, int] | None] = []
        taken = 0
        for route in routes:
            self._spans.append(None if route.take is None else (taken, taken + route.take))
            taken += route.take or 0
        self.is_open = all(route.is_open for route in routes)
        self._has_open = any(route.is_open for route in routes)

    def lane_partitions(self) -> list[int | None]:
        """For each lane the partition that it takes rows from: one named by its own index, None for the shared one."""
        return [None if route.is_open else lane for lane, route in enumerate(self.routes)]

    def partitions(self) -> Mapping[int | None, Partition]:
        """Each row is in exactly one of these; rows that no lane takes are in the first, to fail there."""
        return _partitions(self)

    def span(self, partition: int | None) -> tuple[int, int] | None:
        """The indices [first, end) of rows that a partition may hold; None where that depends on the rows."""
        return None if partition is None else self._spans[partition]

    def assigned_lane(self, index: int, values: Mapping[str, object]) -> int | None:
        """The lane that a row is assigned to, None for whichever is free; raises JobError where there is none."""
        for lane, (route, span) in enumerate(zip(self.routes, self._spans, strict=True)):
            if span is not None:
                if span[0] <= index < span[1]:
                    return lane
            elif route.when is not None and route.when(values):
                return lane
        if self._has_open:
            return None
        raise JobError("no endpoint takes this row: all have `take` or `when`; give one that has neither")


class GivenLanes:
    """Lanes that the caller has decided on already: `lane_of` gives the lane for each row's index."""

    is_open = False

    def __init__(self, lane_of: Callable[[int], int], lanes: int) -> None:
        self._lane_of = lane_of
        self._lanes = lanes

    def lane_partitions(self) -> list[int | None]:
        """Each lane has its own partition."""
        return [*range(self._lanes)]

    def partitions(self) -> Mapping[int | None, Partition]:
        """See `RowRouter`."""
        return _partitions(self)

    def span(self, partition: int | None) -> tuple[int, int] | None:
        """Only the caller knows."""
        return None

    def assigned_lane(self, index: int, values: Mapping[str, object]) -> int:
        """The lane that the caller gives."""
        return self._lane_of(index)


def _partitions(router: RowRouter) -> Mapping[int | None, Partition]:
    names = list(dict.fromkeys(router.lane_partitions()))
    return {name: Partition(router, name, takes_unassigned=name == names[0]) for name in names}


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows assigned to one lane, or to whichever is free of those that share a partition (`lane` is None).

    `takes_unassigned`: also those that no lane takes.
    """

    router: RowRouter
    lane: int | None
    takes_unassigned: bool

    @property
    def is_everything(self) -> bool:
        """Whether every row is in it."""
        return self.router.is_open

    def may_hold(self, first: int, end: int) -> bool:
        """Whether rows with the indices [first, end) can be in it."""
        span = self.router.span(self.lane)
        return span is None or self.takes_unassigned or (first < span[1] and end > span[0])

    def claimed(self, rows: Iterable[tuple[int, int, Mapping[str, object] | None]]) -> tuple[list[int], dict[int, str]]:
        """Of rows (offset, index, values; None: could not be read) those in it, and why some are assigned nowhere."""
        claimed: list[int] = []
        unassigned: dict[int, str] = {}
        for at, index, values in rows:
            claim = self._claim(index, values)
            if claim:
                claimed.append(at)
            if isinstance(claim, str):
                unassigned[at] = claim
        return claimed, unassigned

    def _claim(self, index: int, values: Mapping[str, object] | None) -> bool | str:
        if values is None:
            return self.takes_unassigned
        try:
            return self.router.assigned_lane(index, values) == self.lane
        except JobError as error:
            return str(error) if self.takes_unassigned else False
