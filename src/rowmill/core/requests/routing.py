"""Assigns rows to lanes: by their index, by an expression, or to whichever is free.

There is one lane for each endpoint of the job, in the same order.  It must not know whether a lane works: which other
one takes its rows over in trouble is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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


class Router:
    """The routes of a job's endpoints, in order: the first that claims a row has it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._spans: list[tuple[int, int] | None] = []
        taken = 0
        for route in routes:
            self._spans.append(None if route.take is None else (taken, taken + route.take))
            taken += route.take or 0
        self._has_open = any(route.is_open for route in routes)

    def lane_partitions(self) -> list[int | None]:
        """For each lane the partition that it takes rows from: one named by its own index, None for the shared one."""
        return [None if route.is_open else lane for lane, route in enumerate(self.routes)]

    def partitions(self) -> Mapping[int | None, Partition]:
        """Each row is in exactly one of these; rows that no lane takes are in the first, to fail there."""
        names = list(dict.fromkeys(self.lane_partitions()))
        return {name: Partition(self, name, takes_unassigned=name == names[0]) for name in names}

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


class PlacedRouter(Router):
    """Routes that the caller has decided on already: `lane_of` gives the lane for each row's index."""

    def __init__(self, lane_of: Callable[[int], int], lanes: int) -> None:
        super().__init__([Route(when=lambda values: False)] * lanes)
        self._lane_of = lane_of

    def assigned_lane(self, index: int, values: Mapping[str, object]) -> int:
        """See `Router`."""
        return self._lane_of(index)


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows assigned to one lane, or to whichever is free of those that share a partition (`lane` is None).

    `takes_unassigned`: also those that no lane takes.
    """

    router: Router
    lane: int | None
    takes_unassigned: bool

    @property
    def is_everything(self) -> bool:
        """Whether every row is in it."""
        return all(route.is_open for route in self.router.routes)

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
