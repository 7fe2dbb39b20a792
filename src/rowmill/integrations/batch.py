"""One batch of calls, in one part or in one for each chain that inputs are routed to; must not know LangChain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rowmill.api.calling import SIGNALS
from rowmill.api.running import raise_signal
from rowmill.errors import StoppedError, StopReason
from rowmill.records import GOOD, Outcome
from rowmill.runner.calling import Called, Calls, Target
from rowmill.runner.loop import run_in_thread, signals


class Ended(NamedTuple):
    """An input that has ended: its place, and its output or what it raised."""

    place: int
    output: Any
    error: BaseException | None

    def shown(self, return_exceptions: bool) -> tuple[int, Any]:
        """What the caller gets; raises what is not to be returned."""
        if self.error is None:
            return self.place, self.output
        if return_exceptions and isinstance(self.error, Exception) and self.place >= 0:
            return self.place, self.error
        raise self.error


class Batch:
    """One batch: calls over its inputs, in one part, or in one for each chain that inputs are routed to."""

    def __init__(self, size: int, tell: Callable[[Ended], None] | None, budget_s: float | None) -> None:
        self._size = size
        self._tell = tell
        self._budget_s = budget_s
        self._parts: list[tuple[Calls, Sequence[int]]] = []
        self._ended: dict[int, Called] = {}

    def add(self, targets: Sequence[Target], inputs: Sequence[Any], places: Sequence[int]) -> None:
        """Adds a part whose inputs stand at these places of the whole."""
        part: list[Calls] = []

        def ended(outcome: Outcome) -> None:
            assert self._tell is not None
            place = places[outcome.index]
            if outcome.status in GOOD:
                self._tell(Ended(place, part[0].value(outcome.index), None))
            else:
                self._tell(Ended(place, None, part[0].error(outcome)))

        calls = Calls(targets, inputs, ended=ended if self._tell is not None else None)
        part.append(calls)
        self._parts.append((calls, places))

    def stop(self, reason: StopReason) -> None:
        """Ends the batch early; a second time drops what is in flight.  Does nothing once it has ended."""
        for calls, _ in self._parts:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                calls.stop(reason)

    async def execute(self) -> None:
        """Runs all parts side by side.  Raises what is no exception of a row."""
        executions = [calls.execute() for calls, _ in self._parts]
        ended = await asyncio.gather(*executions, return_exceptions=len(executions) > 1)
        for number, called in enumerate(ended):
            if isinstance(called, BaseException):
                raise called
            self._ended[number] = called

    def run(self) -> None:
        """Executes on a loop of its own.  Ctrl-C awaits what is in flight, then raises KeyboardInterrupt."""
        with signals(lambda number: self.stop(SIGNALS[number]), wanted=True):
            run_in_thread(self.execute)
        for called in self._ended.values():
            raise_signal(called.reason)

    async def execute_and_tell(self, tell: Callable[[Ended], None]) -> None:
        """Executes, and tells of the inputs that were left out, or of what broke it off."""
        try:
            await self.execute()
        except BaseException as error:  # handed to whoever waits
            tell(Ended(-1, None, error))
        else:
            self._tell_left(tell)

    def run_and_tell(self, tell: Callable[[Ended], None]) -> None:
        """The same on a loop of its own."""
        try:
            run_in_thread(self.execute)
        except BaseException as error:  # handed to whoever waits
            tell(Ended(-1, None, error))
        else:
            self._tell_left(tell)

    def _tell_left(self, tell: Callable[[Ended], None]) -> None:
        for place, why in self._left().items():
            tell(Ended(place, None, why))

    def outputs(self, return_exceptions: bool) -> list[Any]:
        """Outputs in order.  Raises the first input's exception where it is not to stand in its place."""
        found: list[Any] = [None] * self._size
        errors: dict[int, Exception] = dict(self._left())
        for number, (calls, places) in enumerate(self._parts):
            called = self._ended[number]
            for index, value in called.values.items():
                found[places[index]] = value
            errors |= {places[index]: calls.error(outcome) for index, outcome in called.bad.items()}
        if errors and not return_exceptions:
            raise errors[min(errors)]
        for place, error in errors.items():
            found[place] = error
        return found

    def _left(self) -> dict[int, Exception]:
        """Inputs that had no turn: the batch's time was up, or its lane had to stop."""
        left: dict[int, Exception] = {}
        for number, (_, places) in enumerate(self._parts):
            called = self._ended[number]
            for index, place in enumerate(places):
                if index not in called.values and index not in called.bad:
                    left[place] = self._why_left(called)
        return left

    def _why_left(self, called: Called) -> Exception:
        if called.reason is StopReason.MAX_DURATION:
            return TimeoutError(f"the batch's max_duration_s of {self._budget_s:g} s was over before this input's turn")
        return StoppedError(called.message, called.reason.value, None)
