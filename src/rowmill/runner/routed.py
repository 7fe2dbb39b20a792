"""Shares one feed's rows out among lanes, each of which may take only its own; must not know what a lane is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from rowmill.engine.feed import Feed
from rowmill.records import Row


class RoutedFeed(Feed):
    """One lane's view of a feed.

    What another lane's turn brings to light waits here, without bound: rows are routed only where the caller holds
    all of them in memory anyway, and a bound would let a slow lane keep rows from a fast one.
    """

    def __init__(self, feed: Feed, route: Callable[[int], int], views: Sequence[RoutedFeed]) -> None:
        super().__init__(iter(()), 1)
        self._feed = feed
        self._route = route
        self._views = views
        self._own: deque[Row] = deque()

    @property
    def exhausted(self) -> bool:
        return not self._own and self._feed.exhausted

    def subscribe(self, listener: Callable[[], None]) -> None:
        """See `Feed`."""
        super().subscribe(listener)
        self._feed.subscribe(listener)

    def take(self) -> Row | None:
        """See `Feed`."""
        if self._own:
            return self._own.popleft()
        while (row := self._feed.take()) is not None:
            owner = self._views[self._route(row.index)]
            if owner is self:
                return row
            owner._own.append(row)
            owner._tell()
        return None


def routed(feed: Feed, route: Callable[[int], int] | None, lanes: int) -> Sequence[Feed]:
    """A feed for each lane; the same one where whoever is free takes the next row."""
    if route is None:
        return [feed] * lanes
    views: list[RoutedFeed] = []
    views.extend(RoutedFeed(feed, route, views) for _ in range(lanes))
    return views
