"""Row -> the endpoint that it is meant for: by its place, by an expression, or whoever is free.

It must not know whether that endpoint works: who stands in for it in trouble is the engine's.
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

    def homes(self) -> list[int | None]:
        """For each endpoint the share of rows that it takes from: its own place, None for the shared one."""
        return [None if route.is_open else place for place, route in enumerate(self.routes)]

    def shares(self) -> Mapping[int | None, Share]:
        """Each row is in exactly one of these; rows that nobody takes are in the first, to fail there."""
        homes = list(dict.fromkeys(self.homes()))
        return {home: Share(self, home, takes_strays=home == homes[0]) for home in homes}

    def span(self, home: int | None) -> tuple[int, int] | None:
        """The places [first, end) that a share may hold; None where that depends on the rows."""
        return None if home is None else self._spans[home]

    def home_of(self, place: int, values: Mapping[str, object]) -> int | None:
        """The endpoint that a row is meant for, None for whoever is free; raises JobError where there is none."""
        for home, (route, span) in enumerate(zip(self.routes, self._spans, strict=True)):
            if span is not None:
                if span[0] <= place < span[1]:
                    return home
            elif route.when is not None and route.when(values):
                return home
        if self._has_open:
            return None
        raise JobError("no endpoint takes this row: all have `take` or `when`; give one that has neither")


class PlacedRouter(Router):
    """Routes that the caller has decided on already: `home` names an endpoint for each row's place."""

    def __init__(self, home: Callable[[int], int], endpoints: int) -> None:
        super().__init__([Route(when=lambda values: False)] * endpoints)
        self._home = home

    def home_of(self, place: int, values: Mapping[str, object]) -> int:
        """See `Router`."""
        return self._home(place)


@dataclass(frozen=True, slots=True)
class Share:
    """The rows that one lane, or all that share theirs, take from.  `takes_strays`: also those meant for nobody."""

    router: Router
    home: int | None
    takes_strays: bool

    @property
    def is_everything(self) -> bool:
        """Whether every row is in it."""
        return all(route.is_open for route in self.router.routes)

    def may_hold(self, first: int, end: int) -> bool:
        """Whether rows at the places [first, end) can be in it."""
        span = self.router.span(self.home)
        return span is None or self.takes_strays or (first < span[1] and end > span[0])

    def claimed(self, rows: Iterable[tuple[int, int, Mapping[str, object] | None]]) -> tuple[list[int], dict[int, str]]:
        """Of rows (offset, place, values; None: could not be read) those in it, and of some why they fail."""
        claimed: list[int] = []
        strays: dict[int, str] = {}
        for at, place, values in rows:
            claim = self._claim(place, values)
            if claim:
                claimed.append(at)
            if isinstance(claim, str):
                strays[at] = claim
        return claimed, strays

    def _claim(self, place: int, values: Mapping[str, object] | None) -> bool | str:
        if values is None:
            return self.takes_strays
        try:
            return self.router.home_of(place, values) == self.home
        except JobError as error:
            return str(error) if self.takes_strays else False
