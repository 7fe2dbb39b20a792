"""The opening of a run: rows refused alike are held back until one row does better.

Twenty rows refused for the same reason and none answered mean that the job is wrong, not the rows: the run is
hopeless, and the rows held back stay pending.  It must not know who asks.
"""

from __future__ import annotations

from rowmill.records import Outcome, Status

ALIKE_ROWS = 20


class Opening:
    """Holds outcomes until the run has shown that it can succeed; at most 20 rows plus those in flight."""

    def __init__(self, *, has_succeeded: bool) -> None:
        self._over = has_succeeded
        self._held: list[Outcome] = []
        self._refusal: str | None = None

    def admit(self, outcome: Outcome, refusal: str | None) -> list[Outcome]:
        """Takes an ended row; returns what may be saved now.

        `refusal` names what all rows would be refused for alike (status, code, parameter), None for any other end.
        """
        if self._over:
            return [outcome]
        if refusal is None or (self._refusal is not None and refusal != self._refusal):
            if outcome.status is Status.FAILED and refusal is None and not outcome.attempts:
                return [outcome]
            return [*self.release(), outcome]
        self._refusal = refusal
        self._held.append(outcome)
        return []

    @property
    def held_rows(self) -> int:
        return len(self._held)

    @property
    def hopeless(self) -> str | None:
        """The error of the rows held back, once there are enough of them."""
        return self._held[0].error if not self._over and len(self._held) >= ALIKE_ROWS else None

    def release(self) -> list[Outcome]:
        """Ends the opening and gives back what was held."""
        self._over = True
        held, self._held = self._held, []
        return held
