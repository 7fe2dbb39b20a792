"""One batch of calls, in memory or with a run file, and what each input gets; must not know LangChain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rowmill.api.calling import left_out
from rowmill.api.running import raise_signal
from rowmill.errors import StopReason
from rowmill.records import GOOD, Outcome
from rowmill.runner.maps.calls import MISSING, Called, Calls
from rowmill.runner.maps.stored_calls import StoredCalls


class Ended(NamedTuple):
    """An input that has ended: its index, and its output or what it raised.  An index of -1 is the batch itself."""

    input_index: int
    output: Any
    error: BaseException | None

    def shown(self, return_exceptions: bool) -> tuple[int, Any]:
        """What the caller gets; raises what is not to be returned."""
        if self.error is None:
            return self.input_index, self.output
        if return_exceptions and isinstance(self.error, Exception) and self.input_index >= 0:
            return self.input_index, self.error
        raise self.error


class Batch:
    """One batch.  `calls` makes its calls, given the function that is called with each row's outcome.

    `notify` is called once for every input, as it ends: with a run file first for those that ended well before, and
    last for those that failed before or had no turn.
    """

    def __init__(
        self,
        calls: Callable[[Callable[[Outcome], None] | None], Calls | StoredCalls],
        budget_s: float | None,
        notify: Callable[[Ended], None] | None = None,
    ) -> None:
        self._calls = calls(None if notify is None else self._ended)
        self._budget_s = budget_s
        self._notify = notify
        self._notified: set[int] = set()
        self._called: Called | None = None

    def stop(self, reason: StopReason) -> None:
        """Ends the batch early; a second time drops what is in flight.  Does nothing once it has ended."""
        self._calls.stop(reason)

    async def execute(self) -> None:
        """Calls on the running loop.  Raises what is no exception of a row."""
        self._called = await self._calls.execute()

    def run(self) -> None:
        """Calls on a loop of its own.  Ctrl-C awaits what is in flight, then raises KeyboardInterrupt."""
        self._called = self._calls.run()
        raise_signal(self._called.reason)

    async def execute_and_notify(self) -> None:
        """As `execute`; `notify` hears of what breaks the batch off, too."""
        with self._notifying():
            await self.execute()

    def run_and_notify(self) -> None:
        """As `run`; `notify` hears of what breaks the batch off, too."""
        with self._notifying():
            self.run()

    def outputs(self, return_exceptions: bool) -> list[Any]:
        """Outputs in order.  Raises the first input's exception where it is not to stand in its place."""
        assert self._called is not None
        found = self._called.values
        errors = {index: self._raised(self._called, index) for index in (*self._called.bad, *self._called.left())}
        if errors and not return_exceptions:
            raise errors[min(errors)]
        for index, error in errors.items():
            found[index] = error
        return found

    def _ended(self, outcome: Outcome) -> None:
        assert self._notify is not None
        self._notified.add(outcome.index)
        if outcome.status in GOOD:
            self._notify(Ended(outcome.index, self._calls.value(outcome), None))
        else:
            self._notify(Ended(outcome.index, None, self._calls.error(outcome)))

    @contextmanager
    def _notifying(self) -> Iterator[None]:
        assert self._notify is not None
        try:
            yield
            assert self._called is not None
            for index, output in enumerate(self._called.values):
                if index not in self._notified:
                    error = self._raised(self._called, index) if output is MISSING else None
                    self._notify(Ended(index, output, error))
        except BaseException as error:  # handed to the caller that waits
            self._notify(Ended(-1, None, error))

    def _raised(self, called: Called, index: int) -> Exception:
        """What the input raised, or why it had no turn."""
        if index in called.bad:
            return called.raised(index)
        if called.reason is StopReason.MAX_DURATION:
            return TimeoutError(f"the batch's max_duration_s of {self._budget_s:g} s was over before this input's turn")
        return left_out(called)
