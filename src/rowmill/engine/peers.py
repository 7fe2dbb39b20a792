"""What a lane may ask of the run that it is one of: new rows, and others that take over what it cannot send.

A lane knows the run's other lanes only through this.
"""

from __future__ import annotations

from typing import Protocol

from rowmill.core.replies.steps import RowState


class Peers(Protocol):
    """One lane's side of failover.  `index` is the lane's in the job; `is_shared`: the run has several lanes."""

    index: int
    is_shared: bool

    def next_row(self) -> RowState | None:
        """A new row from the lane's feeds, None if none is here now."""

    def is_exhausted(self) -> bool:
        """Whether the lane's feeds will bring no more rows."""

    def probe(self) -> RowState | None:
        """A row that waits in another lane's trouble, for a lane to probe with that has none of its own."""

    def take_over(self, state: RowState) -> bool:
        """Hands a row of the lane, which is in trouble, to another one; false where none may take it now."""

    def has_next(self, state: RowState) -> bool:
        """Whether a row may go on to another lane in a cascade."""

    def pass_on(self, state: RowState) -> None:
        """Sends a row that the lane has finished with on to the next one of its cascade; there must be one."""

    def troubled(self) -> None:
        """The lane has got into trouble, or deeper: others take over what they may."""

    def well_again(self) -> None:
        """The lane works again: it may take over what waits elsewhere, and has its own rows for itself."""

    def is_over(self) -> bool:
        """Whether no lane will have anything to do any more."""

    def is_last_row(self) -> bool:
        """Whether the row at hand is the only one left in the run."""

    def wake_all(self) -> None:
        """Lets every worker of the run look again."""
