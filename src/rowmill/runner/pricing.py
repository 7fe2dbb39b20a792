"""What the endpoints' tokens cost: as the job states it, or as the bundled price data has it; else unknown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from rowmill.job import Job
from rowmill.job.model import effective_params
from rowmill.prices import Price, implausible, price_of
from rowmill.providers.presets import sells_tokens
from rowmill.runner.lanes import Endpoint


def find_prices(job: Job, endpoints: Sequence[Endpoint], today: date | None = None) -> list[Price | None]:
    """One price an endpoint, in order, None where it is unknown.

    Looking one up takes half a second the first time, so do not call it on a loop.
    """
    day = today or date.today()
    return [_price(job, endpoint, day) for endpoint in endpoints]


def odd_prices(endpoints: Sequence[Endpoint]) -> list[str]:
    """What is implausible about stated prices, one sentence each."""
    stated = [(endpoint.name, endpoint.spec.price) for endpoint in endpoints]
    found = [(name, implausible(price.spec)) for name, price in stated if price is not None]
    return [f"{name}: {words}" for name, words in found if words is not None]


def _price(job: Job, endpoint: Endpoint, today: date) -> Price | None:
    resolved, stated = endpoint.resolved, endpoint.spec.price
    preset = resolved.preset if stated is None and sells_tokens(resolved) else None
    if stated is None and preset is None:
        return None
    tier = effective_params(job, endpoint.spec).get("service_tier")
    context = {"service_tier": tier} if isinstance(tier, str) else {}
    override = None if stated is None else stated.spec
    return price_of(resolved.model, preset, override, today=today, context=context)
