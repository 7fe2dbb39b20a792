"""The first rows of a lane: those refused alike are held back until one row does better.

Twenty rows refused for the same reason and none answered mean that the job is wrong, not the rows: the lane is
disabled, and the rows held back go to another one or stay pending.  It must not know the lane.
"""

from __future__ import annotations

from typing import NamedTuple

from rowmill.core.replies.steps import RowState
from rowmill.records import Outcome, Status

ALIKE_ROWS = 20


class Ended(NamedTuple):
    """A row and how it ended, held back until the check is over."""

    state: RowState
    outcome: Outcome


class FirstRowsCheck:
    """Holds outcomes of a lane until it has shown that it can succeed; at most 20 rows plus those in flight.

    Once it `is_over`, every outcome may be saved at once.
    """

    def __init__(self, *, has_succeeded: bool) -> None:
        self.is_over = has_succeeded
        self._held: list[Ended] = []
        self._refusal: str | None = None

    def admit(self, state: RowState, outcome: Outcome, refusal: str | None) -> list[Outcome]:
        """Takes an ended row; returns what may be saved now.

        `refusal` names what all rows would be refused for alike (status, code, parameter), None for any other end.
        """
        if self.is_over:
            return [outcome]
        if refusal is None or (self._refusal is not None and refusal != self._refusal):
            if outcome.status is Status.FAILED and refusal is None and not outcome.attempts:
                return [outcome]
            return [*(held.outcome for held in self.release()), outcome]
        self._refusal = refusal
        self._held.append(Ended(state, outcome))
        return []

    @property
    def held_rows(self) -> int:
        return len(self._held)

    @property
    def refused_alike(self) -> str | None:
        """The error of the rows held back, once there are enough of them."""
        return self._held[0].outcome.error if not self.is_over and len(self._held) >= ALIKE_ROWS else None

    def release(self) -> list[Ended]:
        """Ends the check and gives back what was held."""
        self.is_over = True
        held, self._held = self._held, []
        return held
