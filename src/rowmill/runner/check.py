"""Validates a job and renders its first row; sends nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.job.model import effective_params
from rowmill.prompts import TemplateFault
from rowmill.records import Request, Row
from rowmill.runner.lanes import Endpoint, NoTransport, make_provider, resolve_endpoints
from rowmill.runner.places import check_place
from rowmill.runner.plan import Plan, make_plan, open_input
from rowmill.runner.pricing import odd_prices, priced


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a run would do: the rows looked at, the columns there are, the first request as JSON text."""

    rows_seen: int
    columns: Sequence[str]
    first_request: str | None
    endpoints: Sequence[str]
    notes: Sequence[str]


def check(job: Job) -> CheckReport:
    """Raises JobError with everything that is wrong."""
    plan = make_plan(job)
    endpoints = resolve_endpoints(job)
    if job.budget_usd is not None:
        endpoints = priced(job, endpoints)
    if plan.target is not None:
        check_place(plan.target, plan.run_file)
    opened = open_input(plan)
    notes: list[str] = odd_prices(endpoints)
    chunk = next(opened.chunks, None)
    first: str | None = None
    if chunk is None:
        notes.append("the input has no rows; the output will be valid and empty")
    else:
        for fault in list(chunk.faults.values())[:5]:
            notes.append(f"this row will fail: {fault}")
        for offset, values in enumerate(chunk.values(plan.names)):
            if offset not in chunk.faults:
                first = _rendered(plan, endpoints[0], Row(chunk.indices[offset], values))
                break
    if opened.size_hint:
        notes.append(f"{opened.size_hint:,} rows in the input")
    return CheckReport(
        0 if chunk is None else len(chunk),
        [] if chunk is None else list(chunk.columns),
        first,
        [f"{one.name} at {one.address}" for one in endpoints],
        notes,
    )


def _rendered(plan: Plan, endpoint: Endpoint, row: Row) -> str:
    """The body of the row's request, as it would be sent."""
    try:
        messages = plan.prompt.render(row)
    except TemplateFault as fault:
        raise JobError(f"row {row.index}: {fault}") from None
    request = Request(messages, effective_params(plan.job, endpoint.spec))
    body = make_provider(NoTransport(), endpoint, plan.schema).body(request)
    return msgspec.json.format(body, indent=2).decode()
