"""Says what a run will cost before it begins, and has a dear one agreed to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowmill.core.pricing.forecast import Forecast
from rowmill.errors import JobError
from rowmill.events import Notice
from rowmill.observers.quotes import forecast_line
from rowmill.ports import Observer
from rowmill.runner.commands.quote import has_begun
from rowmill.runner.setup.endpoints import Endpoint
from rowmill.runner.setup.forecasting import forecast
from rowmill.runner.setup.plan import Input, Plan


class Agreement(NamedTuple):
    """Above `usd` a run is asked about with `ask`."""

    usd: float
    ask: Callable[[str], bool]


def say_cost(
    plan: Plan,
    endpoints: Sequence[Endpoint],
    opened: Input | None,
    observers: Sequence[Observer],
    agreement: Agreement | None,
) -> None:
    """Raises JobError where the user does not agree.  A run that has begun was agreed to; a pilot asks by itself."""
    if plan.job.pilot is not None or has_begun(plan):
        return
    found = forecast(plan, endpoints, opened)
    if found is None:
        return
    words = forecast_line(found)
    if agreement is None or not _is_dear(found, agreement.usd):
        for observer in observers:
            observer.notify(Notice(words))
    elif not agreement.ask(f"{words}.\nGo on?"):
        raise JobError("nothing was sent: the cost was not agreed to")


def _is_dear(found: Forecast, usd: float) -> bool:
    return found.total is not None and found.total.likely > usd
