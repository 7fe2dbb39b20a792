"""What earlier sessions have sent for rows that are pending, from their attempts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rowmill.failure_kinds import MAY_BE_ROWS, READ_AGAIN, UNCOUNTED, UNREAD
from rowmill.records import Fault, RawReply, Row, Spent
from rowmill.store.packing import Packer

# Of a row that was cut off before its outcome was saved, or before the next endpoint of a cascade had answered.
TO_READ: frozenset[str | None] = READ_AGAIN | {None, UNREAD}
RESEND, REREAD = 1, 2
ATTEMPTS = """
SELECT id >> 16, kind, lane, latency_s, packed, body, status_code, input_tokens, output_tokens, cost_usd
FROM attempts WHERE id > ? AND id < ? ORDER BY id
"""


class Past(NamedTuple):
    """What the run file knows of some rows: their attempts, what is asked of them anew, and lanes by id."""

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
        unread, lane_failures, spent = history_of(self.attempts, self.states, packer)
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


def past_of(connection: sqlite3.Connection, first: int, last: int, states: Mapping[int, int]) -> Past:
    """The past of the rows from `first` to `last`; `states` is their column `requeued`."""
    attempts = connection.execute(ATTEMPTS, (first << 16, (last + 1) << 16)).fetchall()
    return Past(attempts, states, dict(connection.execute("SELECT id, endpoint FROM lanes")) if attempts else {})


def history_of(
    history: Sequence[tuple[Any, ...]],
    states: Mapping[int, int],
    packer: Packer,
) -> tuple[dict[int, tuple[RawReply, int]], dict[int, int], dict[int, Spent]]:
    """Stored replies that are still to be read with the lanes they came from; attempts that looked like the lane's
    trouble; what rows took.

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
        if body is None or (status_code or 0) >= 300:
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
