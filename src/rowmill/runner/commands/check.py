"""Validates a job and renders its first row; sends nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rowmill.core.requests.prompts import TemplateFault
from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.ports import Chunk
from rowmill.records import Row
from rowmill.runner.output.destinations import check_destination
from rowmill.runner.setup.endpoints import Endpoint, NoTransport, make_provider, resolve_endpoints
from rowmill.runner.setup.plan import Plan, make_plan, open_input
from rowmill.runner.setup.pricing import odd_prices, priced

MOST_FAULTS = 5


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
        check_destination(plan.target, plan.run_file)
    opened = open_input(plan)
    notes: list[str] = [*odd_prices(endpoints), *opened.notes]
    chunk = next(opened.chunks, None)
    first: str | None = None
    if chunk is None:
        notes.append("the input has no rows; the output will be valid and empty")
    else:
        first, faults = _first_request(plan, endpoints, chunk)
        for fault in [*map(str, chunk.faults.values()), *faults][:MOST_FAULTS]:
            notes.append(f"this row will fail: {fault}")
    if opened.size_hint:
        notes.append(f"{opened.size_hint:,} rows in the input")
    return CheckReport(
        rows_seen=0 if chunk is None else len(chunk),
        columns=[] if chunk is None else list(chunk.columns),
        first_request=first,
        endpoints=[f"{one.name} at {one.resolved.origin}, {one.credentials.source}" for one in endpoints],
        notes=notes,
    )


def _first_request(plan: Plan, endpoints: Sequence[Endpoint], chunk: Chunk) -> tuple[str | None, list[str]]:
    """The first request that can be sent, and why the bodies before it cannot; a prompt must fit the first row."""
    faults: list[str] = []
    for offset, values in enumerate(chunk.values(plan.value_names)):
        if offset in chunk.faults:
            continue
        row = Row(chunk.indices[offset], values)
        try:
            return _rendered(plan, endpoints, row), faults
        except TemplateFault as fault:
            if not plan.job.is_batch:
                raise JobError(f"row {row.index}: {fault}") from None
            faults.append(f"row {row.index}: {fault}")
    return None, faults


def _rendered(plan: Plan, endpoints: Sequence[Endpoint], row: Row) -> str:
    """The body of the row's request, as it would be sent.  Raises TemplateFault."""
    number = plan.router.assigned_lane(row.index, row.values)
    if number is None:
        number = plan.router.lane_partitions().index(None)
    request = plan.endpoint_prompt(number).request(row)
    body = make_provider(NoTransport(), endpoints[number], plan.schema).body(request)
    return msgspec.json.format(body, indent=2).decode()
