"""The path of a row through a worker, top to bottom: take, render, send, save, read, decide.

It must not know of threads, files or HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import msgspec

from rowmill.core.pricing.attempt_cost import attempt_cost
from rowmill.core.replies.answers import read_answer, repair_messages, reply_text
from rowmill.core.replies.reading import second_look
from rowmill.core.replies.steps import Done, Move, RetryRules, RowState, Wait, next_step
from rowmill.core.requests.prompts import TemplateFault
from rowmill.engine.budget_gate import BudgetGate
from rowmill.engine.lane import Lane
from rowmill.errors import FailureKind
from rowmill.failure_kinds import UNCOUNTED, UNREAD
from rowmill.ports import AnswerReader, Aside, Clock, RequestBuilder, Store
from rowmill.records import NO_USAGE, Answer, Attempt, Failure, Outcome, RawReply, Reply, Row, Status

EXCERPT_BYTES = 2000
LARGE_BYTES = 1 << 20
BLOCKED = Failure(FailureKind.THROTTLED, "the endpoint was paused while the row waited for its rates")

Read = Callable[[Lane, "WorkerContext", RowState, RawReply], tuple[Answer | Failure | None, Reply | None]]

_encode = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class RowRules:
    """What the job says about each row at one endpoint.  `empty` is send, skip or fail.

    `row_params` gives parameters and model where they depend on the row, and may raise TemplateFault; `parse` reads a
    reply's text before the schema does; `why_skipped` says why a row is not sent, None where it is.
    """

    prompt: RequestBuilder
    params: Mapping[str, object]
    schema: AnswerReader | None
    retry: RetryRules
    empty: str = "send"
    row_params: Callable[[Row], tuple[Mapping[str, object], str | None]] | None = None
    parse: Callable[[str], object] | None = None
    why_skipped: Callable[[Row], str | None] | None = None


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the workers of a lane share.

    `finished` is called for each row that ends there, with its outcome and refusal (see `Done`).  `aside` has what
    may hold the loop done beside it, one piece at a time: somebody's function, or the reading of a large reply.
    """

    rules: RowRules
    store: Store
    clock: Clock
    budget_gate: BudgetGate
    finished: Callable[[RowState, Outcome, str | None], None]
    aside: Aside


async def work(lane: Lane, context: WorkerContext) -> None:
    """Takes steps from the lane until there are none; holds a slot only while a step is under way."""
    while True:
        if context.store.full():
            await context.store.room()
        state = lane.take_now(context.clock.now()) or await lane.take()
        if state is None:
            return
        try:
            decision = await one_step(lane, context, state)
            if type(decision) is Done:
                context.finished(state, _outcome(lane, state, decision), decision.refusal)
            elif type(decision) is Wait:
                lane.put_back(state, decision.delay_s)
            elif type(decision) is Move:
                lane.peers.pass_on(state)
        finally:
            lane.release()


async def one_step(lane: Lane, context: WorkerContext, state: RowState) -> Wait | Move | Done | None:
    """Makes one request of a row, from rendering to the decision what comes next; None where it stays pending."""
    if state.unread is not None:
        return await _read_stored(lane, context, state, state.unread)
    if state.request is None:
        early = _prepare(state, context.rules)
        if early is not None:
            return early
    left_s = context.rules.retry.row_timeout_s - state.busy_s
    if left_s <= 0:  # it was held back while its failures might have been an outage
        words = f"row_timeout_s of {context.rules.retry.row_timeout_s:g} s reached"
        return Done(Status.FAILED, None, f"{words} after {state.requests} requests")
    if context.budget_gate.budget is not None:
        state.reserved_usd = _worst_usd(lane, state)
        if not await context.budget_gate.admit(state.reserved_usd):
            return None
    if not (lane.may_send_now(state) or await _may_send(lane, context, state)):
        return Wait(0.0, BLOCKED)
    assert state.request is not None
    timeout_s = lane.config.timeout_s
    if left_s < timeout_s:
        timeout_s = left_s
    raw: RawReply | Failure | None = None
    context.budget_gate.sends(state.reserved_usd)
    lane.sends(state)
    try:
        raw = await lane.provider.send(state.request, timeout_s)
    finally:
        lane.has_sent(state, raw)
        if raw is None:  # dropped in flight: it may be billed
            _settle(lane, context, state, None)
    state.busy_s += context.clock.now() - state.sent_at_s
    read: Read = _read
    if type(raw) is RawReply and (len(raw.body) > LARGE_BYTES or context.rules.parse is not None):
        read = await _read_aside(lane, context, state, raw)
    return _judged(lane, context, state, raw, read)


async def _may_send(lane: Lane, context: WorkerContext, state: RowState) -> bool:
    """Waits for the lane's rates; what is not sent, also where the wait is dropped, gives its money back."""
    may_go = False
    try:
        may_go = await lane.may_send(state)
    finally:
        if not may_go:
            context.budget_gate.give_back(state.reserved_usd)
    return may_go


async def _read_aside(lane: Lane, context: WorkerContext, state: RowState, raw: RawReply) -> Read:
    """Reads a reply beside the loop; what was read, or raised, comes out of what is given back.

    Where that is broken off the reply is logged unread: it is paid for.
    """
    try:
        found = await context.aside(partial(_read, lane, context, state, raw))
    except asyncio.CancelledError:
        _read_new(lane, context, state, raw, _read_nothing)
        raise
    except Exception as error:  # a bug of ours or of the user's, raised where any reading raises
        return partial(_raise, error)
    return lambda *_: found


def _read_nothing(*_: object) -> tuple[None, None]:
    return None, None


def _raise(error: Exception, *_: object) -> NoReturn:
    raise error


def _judged(
    lane: Lane, context: WorkerContext, state: RowState, raw: RawReply | Failure, read: Read
) -> Wait | Move | Done:
    """Reads and logs what a send has brought and decides what comes next."""
    seen, reply = _read_new(lane, context, state, raw, read)
    if reply is not None:
        state.latency_s = raw.latency_s
    if type(seen) is Answer:
        state.requests += 1
        lane.succeeded(state)
        return next_step(state, seen, context.rules.retry, uses_attempt=True, random=context.clock.random)
    assert isinstance(seen, Failure)
    return _or_repair(state, context.rules, _after_failure(lane, context, state, seen), reply)


async def _read_stored(lane: Lane, context: WorkerContext, state: RowState, raw: RawReply) -> Wait | Move | Done:
    """Reads a reply of an earlier session.  What only had to be read anew is never sent again."""
    if len(raw.body) > LARGE_BYTES or context.rules.parse is not None:
        seen, reply = await context.aside(partial(_read, lane, context, state, raw))
    else:
        seen, reply = _read(lane, context, state, raw)
    state.unread = None
    if reply is not None:
        state.latency_s = raw.latency_s
    rules = _rules_now(lane, context, state)
    if state.row.reread:
        rules = replace(rules, repair=0, attempts=1, cascade=frozenset())
    if isinstance(seen, Failure):
        state.attempts += 1
    decision = next_step(state, seen, rules, uses_attempt=True, random=context.clock.random)
    return _or_repair(state, context.rules, decision, reply)


def _rules_now(lane: Lane, context: WorkerContext, state: RowState) -> RetryRules:
    """The lane's rules; without the cascade where there is nobody to go on to."""
    rules = context.rules.retry
    return replace(rules, cascade=frozenset()) if rules.cascade and not lane.peers.has_next(state) else rules


def _or_repair(
    state: RowState, rules: RowRules, decision: Wait | Move | Done, reply: Reply | None
) -> Wait | Move | Done:
    """Where a repair follows, makes it the row's request: its own messages, the bad reply and what is wrong with it."""
    if type(decision) is not Wait or not decision.repair or reply is None:
        return decision
    early = _prepare(state, rules)
    if early is not None:
        return early
    assert state.request is not None
    messages = repair_messages(state.request.messages, reply_text(reply), decision.why.message)
    state.request = state.request.replaced(messages=messages)
    state.need = None
    state.repairs += 1
    return decision


def _prepare(state: RowState, rules: RowRules) -> Done | None:
    """Renders the request; says how a row ends that is never sent."""
    row = state.row
    if row.fault is not None:
        return Done(Status.FAILED, None, str(row.fault))
    if rules.why_skipped is not None and (why := rules.why_skipped(row)) is not None:
        return Done(Status.SKIPPED, None, why)
    if rules.empty != "send" and rules.prompt.is_blank(row):
        if rules.empty == "skip":
            return Done(Status.SKIPPED, None, None)
        return Done(Status.FAILED, None, "every column that the prompt uses is empty (--empty fail)")
    try:
        params, model = (rules.params, None) if rules.row_params is None else rules.row_params(row)
        request = rules.prompt.request(row, params)
        state.request = request if model is None else request.replaced(model=model)
    except TemplateFault as fault:
        return Done(Status.FAILED, None, str(fault))
    return None


def _worst_usd(lane: Lane, state: RowState) -> float:
    worst_usd, request = lane.config.worst_usd, state.request
    return 0.0 if worst_usd is None or request is None else worst_usd(request)


def _settle(lane: Lane, context: WorkerContext, state: RowState, cost_usd: float | None) -> None:
    """Counts what one send has cost; where that is unknown, its worst case stands in."""
    worst_usd = state.reserved_usd
    if cost_usd is None and not worst_usd and lane.config.worst_usd is not None and state.request is not None:
        worst_usd = lane.config.worst_usd(state.request)
    lane.stats.paid(cost_usd, worst_usd)
    if context.budget_gate.budget is not None:
        context.budget_gate.settle(state.reserved_usd, cost_usd)


def _read_new(
    lane: Lane, context: WorkerContext, state: RowState, raw: RawReply | Failure, read: Read
) -> tuple[Answer | Failure | None, Reply | None]:
    """Reads what came and logs it.  Invariant: a raw reply reaches the store even if reading it raises."""
    seen: Answer | Failure | None = None
    reply: Reply | None = None
    try:
        if type(raw) is RawReply:
            seen, reply = read(lane, context, state, raw)
        else:
            assert isinstance(raw, Failure)
            seen = raw
        return seen, reply
    finally:
        failure = seen if isinstance(seen, Failure) else None
        cost_usd = _count(lane, state, raw, reply, failure)
        _settle(lane, context, state, cost_usd)
        context.store.save_attempt(_attempt(lane, state, raw, failure, reply, cost_usd))
        state.is_new = False


def _read(lane: Lane, context: WorkerContext, state: RowState, raw: RawReply) -> tuple[Answer | Failure, Reply | None]:
    read = lane.provider.read(raw)
    if type(read) is not Reply:
        assert isinstance(read, Failure)
        read = second_look(lane.provider, raw, read)
        if isinstance(read, Failure):
            return read, None
    state.model = read.model
    return read_answer(read, context.rules.schema, context.rules.parse), read


def _count(
    lane: Lane, state: RowState, raw: RawReply | Failure, reply: Reply | None, failure: Failure | None
) -> float | None:
    """Adds tokens and cost of one attempt to its row's and its lane's; what it has cost."""
    price, price_of = lane.config.price, lane.config.price_of
    if price_of is not None and state.request is not None:
        price = price_of(state.request)
    cost_usd = attempt_cost(price, raw, reply, failure)
    if state.cost_usd is not None:
        state.cost_usd = None if cost_usd is None else state.cost_usd + cost_usd
    if reply is None:
        return cost_usd
    usage = reply.usage
    lane.gate.used(state, usage)
    if usage is NO_USAGE:
        return cost_usd
    lane.stats.used(usage)
    if usage.input_tokens is not None:
        state.input_tokens = (state.input_tokens or 0) + usage.input_tokens
    if usage.output_tokens is not None:
        state.output_tokens = (state.output_tokens or 0) + usage.output_tokens
    return cost_usd


def _after_failure(lane: Lane, context: WorkerContext, state: RowState, failure: Failure) -> Wait | Move | Done:
    verdict = lane.judge(state, failure)
    kind = failure.kind
    if kind not in UNCOUNTED:
        state.requests += 1
    if verdict.uses_attempt:
        state.attempts += 1
    rules = _rules_now(lane, context, state)
    decision = next_step(state, failure, rules, uses_attempt=verdict.uses_attempt, random=context.clock.random)
    if type(decision) is not Wait and lane.must_hold(state, failure):
        decision = Wait(context.rules.retry.backoff_s * context.clock.random(), failure)
    if type(decision) is Wait:
        state.busy_s += decision.delay_s
        if verdict.uses_attempt:
            lane.stats.retries[kind.value] += 1
    return decision


def _attempt(
    lane: Lane,
    state: RowState,
    raw: RawReply | Failure,
    failure: Failure | None,
    reply: Reply | None,
    cost_usd: float | None,
) -> Attempt:
    is_read = reply is not None or failure is not None
    status: int | None = None
    body: bytes | None = None
    if type(raw) is RawReply:
        status = raw.status
        body = raw.body if reply is not None or not is_read or status < 300 else raw.body[:EXCERPT_BYTES]
    usage = reply.usage if reply is not None else NO_USAGE
    return Attempt(
        index=state.row.index,
        endpoint=lane.config.name,
        sent_at=state.sent_at,
        latency_s=raw.latency_s,
        kind=failure.kind.value if failure is not None else None if is_read else UNREAD,
        status_code=status,
        body=body,
        error=failure.message if failure is not None else None,
        request_id=reply.request_id if reply is not None else _request_id(raw),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost_usd,
        is_first=state.is_new,
    )


def _request_id(raw: RawReply | Failure) -> str | None:
    """The id that a server gave to a request which it refused: its operators can look the request up by it."""
    return raw.headers.get("x-request-id") if isinstance(raw, RawReply) else None


def _outcome(lane: Lane, state: RowState, done: Done) -> Outcome:
    was_sent = state.requests > 0
    return Outcome(
        index=state.row.index,
        status=done.status,
        answer=None if done.answer is None else _encode(done.answer),
        error=done.error,
        endpoint=lane.config.name if was_sent else None,
        model=_model(lane, state) if was_sent else None,
        attempts=state.requests,
        latency_s=None if state.latency_s is None else int(state.latency_s * 1e4 + 0.5) / 1e4,
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
        cost_usd=round(state.cost_usd, 12) if was_sent and state.cost_usd is not None else None,
        reasoning=done.reasoning,
    )


def _model(lane: Lane, state: RowState) -> str:
    """The model as the reply names it, else as it was asked for."""
    asked = None if state.request is None else state.request.model
    return state.model or asked or lane.config.model
