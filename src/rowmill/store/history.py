"""What earlier sessions have sent for rows that are pending, from their attempts.

A stored reply counts only under the version of the job and the endpoint that produced it (`readable_lanes`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rowmill.failure_kinds import MAY_BE_ROWS, READ_AGAIN, UNCOUNTED, UNREAD
from rowmill.records import Fault, RawReply, Row, Spent
from rowmill.store.packing import Packer

# Of a row that was cut off before its outcome was saved, or before the next endpoint of a cascade had answered.
TO_READ: frozenset[str | None] = READ_AGAIN | {None, UNREAD}
RESEND, REREAD = 1, 2
UNKNOWN_VERSION = 0
ATTEMPTS = """
SELECT id >> 16, kind, lane, latency_s, packed, body, status_code, input_tokens, output_tokens, cost_usd
FROM attempts WHERE id > ? AND id < ? ORDER BY id
"""


class Past(NamedTuple):
    """What the run file knows of some rows: their attempts, what is asked of them anew, and the endpoints of lanes, by
    id, whose replies may still be read.
    """

    attempts: Sequence[tuple[Any, ...]]
    states: Mapping[int, int]
    endpoints: Mapping[int, str]

    def rows(
        self,
        indices: Sequence[int],
        values: Iterable[Mapping[str, object]],
        faults: Mapping[int, Fault],
        packer: Packer,
    ) -> list[Row]:
        """The rows with their past; `faults` are by offset."""
        unread, lane_failures, spent = history_of(self.attempts, self.states, packer, self.endpoints.keys())
        return [
            Row(
                index,
                of_row,
                faults.get(at),
                unread[index][0] if index in unread else None,
                lane_failures.get(index, 0),
                spent.get(index),
                self.states.get(index) == REREAD,
                self.endpoints[unread[index][1]] if index in unread else None,
            )
            for at, (index, of_row) in enumerate(zip(indices, values, strict=True))
        ]


def past_of(
    connection: sqlite3.Connection, first: int, last: int, states: Mapping[int, int], versions: Mapping[str, int]
) -> Past:
    """The past of the rows from `first` to `last`; `states` is their column `requeued`, `versions` the version under
    which each endpoint is asked now.
    """
    attempts = connection.execute(ATTEMPTS, (first << 16, (last + 1) << 16)).fetchall()
    return Past(attempts, states, readable_lanes(connection, versions) if attempts else {})


def readable_lanes(connection: sqlite3.Connection, versions: Mapping[str, int]) -> dict[int, str]:
    """Lanes, by id, whose stored replies may become answers: of an endpoint that the job still has, asked under the
    version that it is asked under now or under one that the user has accepted.

    Where the version of an attempt is not known (format 1), it must be one of those whatever it was.
    """
    stored = connection.execute("SELECT id, accepted FROM versions").fetchall()
    accepted = {number for number, is_accepted in stored if is_accepted}
    if all(number in accepted or number in versions.values() for number, _ in stored):
        accepted.add(UNKNOWN_VERSION)
    return {
        lane: endpoint
        for lane, endpoint, version in connection.execute("SELECT id, endpoint, version FROM lanes")
        if endpoint in versions and (version == versions[endpoint] or version in accepted)
    }


def history_of(
    history: Sequence[tuple[Any, ...]],
    states: Mapping[int, int],
    packer: Packer,
    readable: Container[int],
) -> tuple[dict[int, tuple[RawReply, int]], dict[int, int], dict[int, Spent]]:
    """Stored replies that are still to be read with the lanes they came from, which are `readable`; attempts that
    looked like the lane's trouble; what rows took.

    What is sent anew because somebody asked for it begins at nothing.
    """
    unread: dict[int, tuple[RawReply, int]] = {}
    lane_failures: dict[int, int] = {}
    spent: dict[int, Spent] = {}
    for index, kind, lane, latency_s, packed, body, status_code, *taken in history:
        state = states.get(index)
        if state == 0:
            continue
        if kind in MAY_BE_ROWS:
            lane_failures[index] = lane_failures.get(index, 0) + 1
        if state != RESEND:
            spent[index] = _added(spent.get(index), kind not in UNCOUNTED, *taken)
        if body is None or (status_code or 0) >= 300 or lane not in readable:
            continue
        if state == REREAD or (state is None and kind in TO_READ):
            unread[index] = RawReply(200, {}, packer.unpack_body(packed, body), latency_s or 0.0), lane
    return unread, lane_failures, spent


def _added(
    before: Spent | None,
    counted: bool,
    input_tokens: int | None,
    output_tokens: int | None,
    cost_usd: float | None,
) -> Spent:
    if before is None:
        return Spent(int(counted), input_tokens, output_tokens, cost_usd)
    return Spent(
        before.requests + counted,
        _sum(before.input_tokens, input_tokens),
        _sum(before.output_tokens, output_tokens),
        None if before.cost_usd is None or cost_usd is None else before.cost_usd + cost_usd,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other
