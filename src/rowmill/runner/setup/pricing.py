"""What the endpoints' tokens cost: as the job states it, or as the bundled price data has it; else unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from rowmill.core.pricing.prices import Price, implausible, price_of
from rowmill.core.requests.billed_parts import unbounded_parameter
from rowmill.core.requests.expressions import is_template
from rowmill.core.requests.max_tokens import MAX_TOKENS_NAMES, max_tokens_of
from rowmill.engine.rate_gate import request_max_tokens
from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.job.model import effective_params
from rowmill.providers.presets import sells_tokens
from rowmill.records import Request
from rowmill.runner.setup.endpoints import Endpoint

UNLIMITED_TOKENS = 1_000_000  # no model writes more in one reply
TOOL_TOKENS = 600  # Anthropic adds 235 to 530, by model and choice of tool
# What an image counts at most, by OpenAI's formulas: 2,833 tokens and 5,667 for each of 8 tiles, of gpt-4o-mini.
IMAGE_TOKENS: Mapping[str, int] = {"openai": 2833 + 8 * 5667}


def priced(job: Job, endpoints: Sequence[Endpoint], today: date | None = None) -> list[Endpoint]:
    """The endpoints with their prices.  Raises JobError where the job's budget cannot be held with them.

    Looking a price up takes half a second the first time, so do not call it on a loop.
    """
    day = today or date.today()
    found = [replace(endpoint, price=_price(job, endpoint, day)) for endpoint in endpoints]
    if job.budget_usd is not None:
        _check_budget(job, found)
    return found


def odd_prices(endpoints: Sequence[Endpoint]) -> list[str]:
    """What is implausible about stated prices, one sentence each."""
    stated = [(endpoint.name, endpoint.spec.price) for endpoint in endpoints]
    found = [(name, implausible(price.spec)) for name, price in stated if price is not None]
    return [f"{name}: {words}" for name, words in found if words is not None]


def _check_budget(job: Job, endpoints: Sequence[Endpoint]) -> None:
    faults = [f"budget_usd: {words}" for words in odd_prices(endpoints)]
    for endpoint in endpoints:
        if endpoint.price is None:
            faults.append(
                f"budget_usd: the price of {endpoint.name} is unknown; state it in a job file, in USD for a million "
                f"tokens: endpoints: [{{model: {endpoint.name}, price: {{input: 0.15, output: 0.6}}}}]"
            )
        elif not endpoint.price.is_free and (found := unbounded_parameter(effective_params(job, endpoint.spec))):
            faults.append(
                f"budget_usd: params.{found.where} of {endpoint.name} has no known bound on its tokens ({found.why}); "
                "take it out, or run without a budget"
            )
        if answer_limit(job, endpoint) is None and not (_limits_each_row(job, endpoint) or job.is_batch):
            faults.append(
                f"budget_usd: {endpoint.name} needs a limit on the tokens of an answer; give --max-tokens, "
                "or the key params.max_tokens"
            )
    if faults:
        raise JobError(*faults)


def image_tokens(endpoint: Endpoint) -> int | None:
    """How many tokens an image counts at most at this endpoint, None where that is not known."""
    stated = endpoint.spec.price
    if stated is not None and stated.image_tokens is not None:
        return stated.image_tokens
    return IMAGE_TOKENS.get(endpoint.resolved.preset or "") if sells_tokens(endpoint.resolved) else None


def answer_limit(job: Job, endpoint: Endpoint) -> int | None:
    """The most tokens that an answer may have, None where nothing limits it."""
    return max_tokens_of(effective_params(job, endpoint.spec))


def _limits_each_row(job: Job, endpoint: Endpoint) -> bool:
    """Whether the limit on an answer's tokens depends on the row."""
    params = effective_params(job, endpoint.spec)
    return any(is_template(params.get(name)) for name in MAX_TOKENS_NAMES)


def worst_case_of(job: Job, endpoint: Endpoint, body: Callable[[Request], bytes]) -> Callable[[Request], float] | None:
    """What a request may cost at most, from the bytes of its body; None where that is not known."""
    price, max_tokens = endpoint.price, answer_limit(job, endpoint)
    if price is None:
        return None
    if max_tokens is None and not _limits_each_row(job, endpoint):
        return None
    model = endpoint.resolved.model

    def worst(request: Request) -> float:
        sent = body(request)
        most = max_tokens if max_tokens is not None else request_max_tokens(request) or UNLIMITED_TOKENS
        return price.worst_case(len(sent) + hidden_tokens(sent, request.model or model), most, keeps_1h=keeps_1h(sent))

    return worst


def hidden_tokens(body: bytes, model: str) -> int:
    """What is counted besides the body: what Claude is told of tools, by which gateways make it fit a schema too."""
    if "claude" not in model.lower() or not (b'"tools":' in body or b'"response_format":' in body):
        return 0
    return TOOL_TOKENS


def keeps_1h(body: bytes) -> bool:
    """Whether a body may write to a cache that is kept for an hour.  Inside of texts quotes are escaped."""
    return b'"ttl":"1h"' in body


def _price(job: Job, endpoint: Endpoint, today: date) -> Price | None:
    resolved, stated = endpoint.resolved, endpoint.spec.price
    preset = resolved.preset if stated is None and sells_tokens(resolved) else None
    if stated is None and preset is None:
        return None
    tier = effective_params(job, endpoint.spec).get("service_tier")
    context = {"service_tier": tier} if isinstance(tier, str) else {}
    override = None if stated is None else stated.spec
    return price_of(resolved.model, preset, override, today=today, context=context)
