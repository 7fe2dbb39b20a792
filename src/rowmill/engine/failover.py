"""The lanes of one run side by side: which takes rows from which feed, who may take over whose rows, when all is done.

Lanes stand in the order of the job's endpoints, which is the order of preference.  A row is meant for one lane or for
whichever of some is free; only trouble sends it elsewhere.  It must not know how a lane sends or what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rowmill.core.replies.steps import RowState, change_lane, first_state, has_passed, journey_of
from rowmill.engine.lane import Lane
from rowmill.ports import RowFeed


class Member:
    """One lane's side of failover (see `Peers`), made before its lane.

    `feeds` are those that the lane takes rows from now, each with the lane that its rows are assigned to (None:
    whoever is free); the first is its own.
    """

    __slots__ = ("_failover", "feeds", "index", "is_shared", "own_feed", "partition")

    def __init__(self, failover: Failover, index: int, feed: RowFeed, *, has_partition: bool) -> None:
        self.index = index
        self.is_shared = False
        self.partition = index if has_partition else None
        self.own_feed: tuple[RowFeed, int | None] = (feed, self.partition)
        self.feeds = [self.own_feed]
        self._failover = failover

    def next_row(self) -> RowState | None:
        """A new row, from the lane's own feed before one that it has taken over."""
        for feed, partition in self.feeds:
            while (row := feed.take()) is not None:
                state = first_state(row, partition)
                if row.unread is None or not self._failover.read_elsewhere(self.index, state):
                    return state
        return None

    def is_exhausted(self) -> bool:
        """Whether the lane's feeds will bring no more rows."""
        return all(feed.exhausted for feed, _ in self.feeds)

    def probe(self) -> RowState | None:
        """A row that waits in another lane's trouble."""
        return self._failover.probe_for(self.index)

    def take_over(self, state: RowState) -> bool:
        """Hands a row to another lane; false where none may take it now."""
        return self._failover.take_over(self.index, state)

    def has_next(self, state: RowState) -> bool:
        """Whether a row may go on to another lane in a cascade."""
        return self._failover.next_after(self.index, state) is not None

    def pass_on(self, state: RowState) -> None:
        """Sends a row on to the next lane of its cascade; there must be one."""
        self._failover.pass_on(self.index, state)

    def troubled(self) -> None:
        """The lane has got into trouble, or deeper."""
        self._failover.troubled(self.index)

    def well_again(self) -> None:
        """The lane works again."""
        self._failover.well_again()

    def is_over(self) -> bool:
        """Whether no lane will have anything to do any more."""
        return self._failover.is_over()

    def is_last_row(self) -> bool:
        """Whether the row at hand is the only one left in the run."""
        return self._failover.is_last_row()

    def wake_all(self) -> None:
        """Lets every worker of the run look again."""
        self._failover.wake_all()


class Failover:
    """All lanes of a run and their feeds; with one lane nothing here ever moves a row."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._members: list[Member] = []

    def join(self, feed: RowFeed, *, has_partition: bool = False) -> Member:
        """Makes room for one more lane, which `add` takes on.

        `feed` brings rows assigned to it alone (`has_partition`), or those of all lanes that share the feed.
        """
        member = Member(self, len(self._members), feed, has_partition=has_partition)
        self._members.append(member)
        for one in self._members:
            one.is_shared = len(self._members) > 1
        return member

    def add(self, lane: Lane) -> None:
        """Takes a lane on, in the order of `join`."""
        assert lane.peers.index == len(self.lanes)
        self.lanes.append(lane)

    def take_over(self, index: int, state: RowState) -> bool:
        """Hands a row of a lane in trouble to another one; false where it had better wait."""
        target = self._target(index, state)
        if target is not None:
            self._hand_over(index, state, target)
        return target is not None

    def next_after(self, index: int, state: RowState) -> int | None:
        """Which lane is asked next in a cascade."""
        later = range(index + 1, len(self.lanes))
        return next((one for one in later if self._runs(one) and not has_passed(state, one)), None)

    def pass_on(self, index: int, state: RowState) -> None:
        """Sends a row on to the next lane of its cascade; there must be one."""
        target = self.next_after(index, state)
        assert target is not None
        journey_of(state).passed |= {index}
        state.assigned_lane = target
        self._hand_over(index, state, target)

    def read_elsewhere(self, index: int, state: RowState) -> bool:
        """Hands a stored reply to the lane that it came from, where that is another one.

        Where that one no longer runs, nobody reads it but what is asked for by that alone: the row is sent anew.
        """
        name = state.row.unread_from
        owner = next((one for one in self._indices if self.lanes[one].config.name == name), index)
        if owner == index:
            return False
        if self._runs(owner):
            self.lanes[owner].receive(state)
            return True
        if not state.row.reread:
            state.unread = None
        return False

    def probe_for(self, index: int) -> RowState | None:
        """A row that waits in another lane's trouble, for a lane to probe with that has none of its own."""
        for other in self._indices:
            lane = self.lanes[other]
            if other == index or lane.config.pin or not lane.breaker.in_trouble:
                continue
            state = lane.lend(partial(self._may_take, index, other))
            if state is not None:
                change_lane(state, other, index)
                return state
        return None

    def troubled(self, index: int) -> None:
        """A lane has got into trouble, or deeper: others take over what they may."""
        if self._members[index].is_shared:
            self._distribute_feeds()
            self.lanes[index].hand_over_waiting()

    def well_again(self) -> None:
        """A lane works again: it may take over what waits elsewhere, and has its own rows for itself."""
        if len(self.lanes) == 1:
            return
        self._distribute_feeds()
        for other in self.lanes:
            if other.breaker.in_trouble:
                other.hand_over_waiting()

    def is_over(self) -> bool:
        """Whether no lane will have anything to do any more."""
        if any(lane.in_flight or lane.waiting for lane in self.lanes):
            return False
        taken = {feed for member in self._members if self._runs(member.index) for feed, _ in member.feeds}
        return all(feed.exhausted or feed not in taken for feed in {member.own_feed[0] for member in self._members})

    def is_last_row(self) -> bool:
        """Whether the row at hand is the only one left."""
        if sum(lane.in_flight for lane in self.lanes) > 1 or any(lane.waiting for lane in self.lanes):
            return False
        return all(member.is_exhausted() for member in self._members)

    def wake_all(self) -> None:
        """Lets every worker look again."""
        for lane in self.lanes:
            lane.wake_all()

    @property
    def _indices(self) -> range:
        return range(len(self.lanes))

    def _runs(self, index: int) -> bool:
        return self.lanes[index].breaker.disabled is None

    def _hand_over(self, index: int, state: RowState, target: int) -> None:
        change_lane(state, index, target)
        self.lanes[target].receive(state)

    def _target(self, index: int, state: RowState) -> int | None:
        """Which lane takes a row of a lane in trouble over now; None where the row had better wait."""
        if self.lanes[index].config.pin:
            return None
        return self._best(list(self._candidates(index, state)), is_lost=not self._runs(index))

    def _best(self, candidates: Sequence[int], *, is_lost: bool) -> int | None:
        """The first without trouble; where the rows' own lane `is_lost`, else the first that still runs."""
        well = next((one for one in candidates if not self.lanes[one].breaker.in_trouble), None)
        return next((one for one in candidates if self._runs(one)), None) if well is None and is_lost else well

    def _candidates(self, index: int, state: RowState) -> Iterator[int]:
        """Who else may take the row, the best first: those it is meant for, and from a broken lane then all others."""
        meant = [one for one in self._indices if self._is_meant(one, state)]
        rest = [one for one in self._indices if one not in meant] if self.lanes[index].breaker.is_broken else []
        return (one for one in (*meant, *rest) if one != index and not has_passed(state, one))

    def _may_take(self, target: int, index: int, state: RowState) -> bool:
        return target in self._candidates(index, state)

    def _is_meant(self, index: int, state: RowState) -> bool:
        if state.assigned_lane is None:
            return self._members[index].partition is None
        return index == state.assigned_lane

    def _distribute_feeds(self) -> None:
        """Gives each lane its own feed, and those of lanes that are all broken to the first that may take them over."""
        owners: dict[RowFeed, list[Member]] = {}
        for member in self._members:
            member.feeds = [member.own_feed]
            owners.setdefault(member.own_feed[0], []).append(member)
        for members in owners.values():
            target = self._target_of_all([member.index for member in members])
            if target is not None:
                self._members[target].feeds.append(members[0].own_feed)
                self.lanes[target].wake()

    def _target_of_all(self, indices: Sequence[int]) -> int | None:
        """Which lane takes over the feed that these share."""
        owners = [self.lanes[index] for index in indices]
        if not all(one.breaker.is_broken for one in owners) or all(one.config.pin for one in owners):
            return None
        others = [one for one in self._indices if one not in indices]
        return self._best(others, is_lost=not any(self._runs(one) for one in indices))
