"""Frozen events that observers are notified of: rare by design, as what happens once a row is counted instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowmill.records import Figures


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The engine runs; `figures` may be called at any time and from any thread."""

    figures: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The engine has stopped and everything is committed."""


@dataclass(frozen=True, slots=True)
class LanePaused:
    """A lane sends nothing until `seconds` have passed; `why` is for the user."""

    lane: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class LaneResumed:
    """A paused lane sends again."""

    lane: str


@dataclass(frozen=True, slots=True)
class LaneDisabled:
    """A lane is out for the rest of this session."""

    lane: str
    why: str


@dataclass(frozen=True, slots=True)
class LimitChanged:
    """A lane's concurrency limit moved."""

    lane: str
    limit: int
    why: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should read once, for example how many rows may have been paid for twice."""

    text: str


Event = RunStarted | RunEnded | LanePaused | LaneResumed | LaneDisabled | LimitChanged | Notice
