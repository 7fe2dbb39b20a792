"""Validates a job and renders its first row; sends nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.job.model import effective_params
from rowmill.prompts import TemplateFault
from rowmill.records import Message, Row
from rowmill.runner.lanes import resolve_endpoints
from rowmill.runner.plan import make_plan, open_input


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
    endpoints = resolve_endpoints(job, plan.schema)
    opened = open_input(plan)
    notes: list[str] = []
    chunk = next(opened.chunks, None)
    first: str | None = None
    if chunk is None:
        notes.append("the input has no rows; the output will be valid and empty")
    else:
        for fault in list(chunk.faults.values())[:5]:
            notes.append(f"this row will fail: {fault}")
        for offset, values in enumerate(chunk.values(plan.names)):
            if offset not in chunk.faults:
                first = _rendered(job, plan.prompt.render, Row(chunk.indices[offset], values), notes)
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


def _rendered(job: Job, render: object, row: Row, notes: list[str]) -> str | None:
    assert callable(render)
    try:
        messages: Sequence[Message] = render(row)
    except TemplateFault as fault:
        raise JobError(f"row {row.index}: {fault}") from None
    endpoint = job.endpoints[0]
    body = {
        "model": endpoint.model,
        "messages": [{"role": m.role, "content": m.content} for m in messages],
        **effective_params(job, endpoint),
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
