"""Writes what a user should read once to the logger `rowmill`; must not know what decides it."""

from __future__ import annotations

import logging

from rowmill.events import Event, LaneDisabled, LanePaused, LaneResumed, Notice


class Log:
    """Notices and disabled lanes are warnings, pauses are information; implements `ports.Observer`."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("rowmill")

    def notify(self, event: Event) -> None:
        """See `ports.Observer`."""
        match event:
            case Notice(text):
                self._logger.warning("%s", text)
            case LaneDisabled(lane, why):
                self._logger.warning("%s is out for this run: %s", lane, why)
            case LanePaused(lane, seconds, why):
                self._logger.info("%s waits %.1f s: %s", lane, seconds, why)
            case LaneResumed(lane):
                self._logger.info("%s goes on", lane)
            case _:
                pass
