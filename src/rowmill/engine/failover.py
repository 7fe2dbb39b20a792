"""The lanes of one run side by side: who may take over whose rows, and when none will come any more.

Lanes stand in the order of the job's endpoints, which is the order of preference.  A row is meant for one lane or for
whichever of some is free; only trouble sends it elsewhere.  It must not know how a lane sends or what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rowmill.core.replies.steps import RowState, change_lane

if TYPE_CHECKING:
    from rowmill.engine.lane import Lane
    from rowmill.ports import RowFeed


class Failover:
    """All lanes of a run; with one lane nothing here ever moves a row.  `is_shared`: there is more than one."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.is_shared = False

    def add(self, lane: Lane) -> int:
        """Takes a lane on; its index in the order."""
        self.lanes.append(lane)
        self.is_shared = len(self.lanes) > 1
        return len(self.lanes) - 1

    def named(self, endpoint: str | None) -> Lane | None:
        """The lane of that name that still runs."""
        found = (lane for lane in self.lanes if lane.config.name == endpoint and lane.breaker.disabled is None)
        return next(found, None)

    def target(self, lane: Lane, state: RowState) -> Lane | None:
        """Who takes a row of `lane`, which is in trouble, over now; None where the row had better wait."""
        if lane.config.pin:
            return None
        candidates = list(self._candidates(lane, state))
        well = next((other for other in candidates if not other.breaker.in_trouble), None)
        if well is None and lane.breaker.disabled is not None:
            return next((other for other in candidates if other.breaker.disabled is None), None)
        return well

    def next_after(self, lane: Lane, state: RowState) -> Lane | None:
        """Who is asked next in a cascade."""
        later = self.lanes[lane.index + 1 :]
        return next((one for one in later if one.breaker.disabled is None and one.index not in state.passed), None)

    def probe_for(self, lane: Lane) -> RowState | None:
        """A row that waits in another lane's trouble, for `lane` to probe with, which has none of its own."""
        for other in self.lanes:
            if other is lane or other.config.pin or not other.breaker.in_trouble:
                continue
            state = other.lend(partial(self._may_take, lane, other))
            if state is not None:
                change_lane(state, other.index, lane.index)
                return state
        return None

    def troubled(self, lane: Lane) -> None:
        """`lane` has got into trouble, or deeper: others take over what they may."""
        if self.is_shared:
            self._share_feeds()
            lane.hand_over_waiting()

    def well_again(self) -> None:
        """A lane works again: it may take over what waits elsewhere, and has its own rows for itself."""
        if not self.is_shared:
            return
        self._share_feeds()
        for other in self.lanes:
            if other.breaker.in_trouble:
                other.hand_over_waiting()

    def is_over(self) -> bool:
        """Whether no lane will have anything to do any more."""
        if any(lane.in_flight or lane.waiting for lane in self.lanes):
            return False
        return all(feed.exhausted or not takers for feed, takers in self._takers())

    def is_last_row(self) -> bool:
        """Whether the row at hand is the only one left."""
        if sum(lane.in_flight for lane in self.lanes) > 1 or any(lane.waiting for lane in self.lanes):
            return False
        return all(feed.exhausted for lane in self.lanes for feed, _ in lane.feeds)

    def wake_all(self) -> None:
        """Lets every worker look again."""
        for lane in self.lanes:
            lane.wake_all()

    def _candidates(self, lane: Lane, state: RowState) -> Iterator[Lane]:
        """Who else may take the row, the best first: those it is meant for, and from a broken lane then all others."""
        meant = [one for one in self.lanes if self._is_meant(one, state)]
        rest = [one for one in self.lanes if one not in meant] if lane.breaker.is_broken else []
        return (one for one in (*meant, *rest) if one is not lane and one.index not in state.passed)

    def _may_take(self, target: Lane, lane: Lane, state: RowState) -> bool:
        return target in self._candidates(lane, state)

    def _is_meant(self, lane: Lane, state: RowState) -> bool:
        return lane.partition is None if state.assigned_lane is None else lane.index == state.assigned_lane

    def _share_feeds(self) -> None:
        """Gives each lane its own feed, and those of lanes that are all broken to the first that may take them over."""
        owners: dict[RowFeed, list[Lane]] = {}
        for lane in self.lanes:
            lane.feeds = [lane.own_feed]
            owners.setdefault(lane.own_feed[0], []).append(lane)
        for members in owners.values():
            target = self._target_of_all(members)
            if target is not None:
                target.feeds.append(members[0].own_feed)
                target.wake()

    def _target_of_all(self, members: Sequence[Lane]) -> Lane | None:
        if not all(one.breaker.is_broken for one in members) or all(one.config.pin for one in members):
            return None
        others = [one for one in self.lanes if one not in members]
        well = next((one for one in others if not one.breaker.in_trouble), None)
        if well is None and all(one.breaker.disabled is not None for one in members):
            return next((one for one in others if one.breaker.disabled is None), None)
        return well

    def _takers(self) -> Iterator[tuple[RowFeed, bool]]:
        """Every feed, and whether a lane that runs takes rows from it."""
        taken = {feed for lane in self.lanes if lane.breaker.disabled is None for feed, _ in lane.feeds}
        return ((feed, feed in taken) for feed in {lane.own_feed[0] for lane in self.lanes})
