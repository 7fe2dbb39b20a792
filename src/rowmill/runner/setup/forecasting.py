"""What a run will cost, from some of its rows, before any is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rowmill.core.pricing.forecast import Costs, Forecast, between, mean, request_costs
from rowmill.core.requests.prompts import TemplateFault
from rowmill.engine.rate_gate import request_max_tokens
from rowmill.io.sources.row_counts import about_rows
from rowmill.ports import Chunk
from rowmill.records import Request, Row
from rowmill.runner.setup.body_prices import BodyPrices
from rowmill.runner.setup.endpoints import Endpoint, NoTransport, make_provider
from rowmill.runner.setup.plan import Input, Plan
from rowmill.runner.setup.pricing import worst_case_of

SAMPLED_ROWS = 100

CostsOf = Callable[[Request], Costs | None]


def forecast(plan: Plan, endpoints: Sequence[Endpoint], opened: Input | None) -> Forecast | None:
    """What all rows cost with one request each; None where prices are unknown, or nothing costs anything."""
    first = None if opened is None else opened.first
    if first is None or not any(one.batch or (one.price is not None and not one.price.is_free) for one in endpoints):
        return None
    if not plan.job.is_batch and any(one.price is None for one in endpoints):
        return None
    costs_of = [_costs_of(plan, endpoint) for endpoint in endpoints]
    sampled = [_row_costs(plan, costs_of, row) for row in _sample(plan, first)]
    if not sampled or None in sampled:
        return None
    row = mean([costs for costs in sampled if costs is not None])
    counted = opened.size_hint if opened is not None else None
    rows = counted if counted is not None else _about_rows(plan)
    return Forecast(row, rows, counted is not None) if row.likely else None


def _sample(plan: Plan, chunk: Chunk) -> Iterator[Row]:
    step = max(1, len(chunk) // SAMPLED_ROWS)
    for offset, values in enumerate(chunk.values(plan.value_names)):
        if offset % step == 0 and offset not in chunk.faults:
            yield Row(chunk.indices[offset], values)


def _about_rows(plan: Plan) -> int | None:
    """From the input's size, and from what the job says of its rows."""
    job = plan.job
    stated = [number for number in (job.sample, job.limit) if number is not None]
    if job.where is not None:
        return None
    found = about_rows(job.source) if isinstance(job.source, str) else None
    return min(stated, default=None) if found is None else min([found, *stated])


def _row_costs(plan: Plan, costs_of: Sequence[CostsOf], row: Row) -> Costs | None:
    """What a row costs where it is meant to go; None where that is not known."""
    lanes = plan.router.lane_partitions()
    number = plan.router.assigned_lane(row.index, row.values)
    meant = [number] if number is not None else [at for at, part in enumerate(lanes) if part is None]
    costs: list[Costs] = []
    for at in meant or range(len(lanes)):
        asked = plan.endpoint_prompt(at)
        if plan.job.empty != "send" and asked.prompt.is_blank(row):
            return Costs(0.0, 0.0, 0.0)
        try:
            found = costs_of[at](asked.request(row))
        except TemplateFault:  # it will fail, and cost nothing
            return Costs(0.0, 0.0, 0.0)
        if found is None:
            return None
        costs.append(found)
    return between(costs)


def _costs_of(plan: Plan, endpoint: Endpoint) -> CostsOf:
    body = make_provider(NoTransport(), endpoint, plan.schema).body
    if endpoint.batch:
        return _body_costs_of(BodyPrices(plan.job, endpoint), body)
    price, worst = endpoint.price, worst_case_of(plan.job, endpoint, body)

    def costs(request: Request) -> Costs | None:
        if price is None:
            return None
        most_usd = None if worst is None else worst(request)
        return request_costs(price, len(body(request)), request_max_tokens(request), most_usd)

    return costs


def _body_costs_of(prices: BodyPrices, body: Callable[[Request], bytes]) -> CostsOf:
    worst = prices.worst_usd(body)

    def costs(request: Request) -> Costs | None:
        price = prices.of(request)
        if price is None:
            return None
        assert request.body is not None
        limit = request.body.max_tokens
        return request_costs(price, len(body(request)), limit, None if limit is None else worst(request))

    return costs
