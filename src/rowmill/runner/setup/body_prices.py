"""What the bodies of a batch file cost: each names its own model, and may be answered by another tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date

from rowmill.core.pricing.prices import Price, price_of
from rowmill.core.requests.billed_parts import billed_parts
from rowmill.core.rows.chunks import decode_json
from rowmill.job import Job
from rowmill.job.model import effective_params
from rowmill.providers.presets import sells_tokens
from rowmill.records import Body, Request
from rowmill.runner.setup.endpoints import Endpoint
from rowmill.runner.setup.pricing import hidden_tokens, image_tokens, keeps_1h

MOST_REMEMBERED = 1000
WITHOUT_BOUND = "has no known bound on its tokens, and the budget cannot be held without one"


class BodyPrices:
    """Prices at one endpoint, looked up once a model; the one that the job states is that of all."""

    def __init__(self, job: Job, endpoint: Endpoint, today: date | None = None) -> None:
        self._stated = endpoint.price if endpoint.spec.price is not None else None
        self._preset = endpoint.resolved.preset if sells_tokens(endpoint.resolved) else None
        self._model = endpoint.resolved.model
        self._image_tokens = image_tokens(endpoint)
        self._tier = effective_params(job, endpoint.spec).get("service_tier")
        self._today = today or date.today()
        self._known: dict[tuple[str, object], Price | None] = {}

    def of(self, request: Request) -> Price | None:
        """What the request's tokens cost, None where it is unknown."""
        assert request.body is not None
        return self._price(request.body)

    def worst_usd(self, content: Callable[[Request], bytes]) -> Callable[[Request], float]:
        """What a request may cost at most; nothing where no bound is known, which `bounded` has refused by then."""

        def worst(request: Request) -> float:
            body = request.body
            assert body is not None
            price = self._price(body)
            if price is None or body.max_tokens is None:
                return 0.0
            sent = content(request)
            tokens = max(len(sent) + body.surplus_tokens, 0) + hidden_tokens(sent, body.model or self._model)
            return price.worst_case(tokens, body.max_tokens, keeps_1h=keeps_1h(sent))

        return worst

    def bounded(self, body: Body, values: Mapping[str, object]) -> Body | str:
        """The body, which spells `values`, with the bound of its input; or why a budget cannot be held with it."""
        price = self._price(body)
        if price is None:
            return (
                f"the price of {body.model or self._model} is unknown, and the budget cannot be held without it: "
                "state one in a job file (endpoints: price)"
            )
        if price.is_free:
            return body
        if body.max_tokens is None:
            return "the body does not limit its answer, and the budget cannot be held without that: add --max-tokens N"
        parts = billed_parts(values, body.path)
        if parts.unbounded is not None:
            where, why = parts.unbounded
            return f"body.{where} {WITHOUT_BOUND} ({why}): take it out, or run without --budget-usd"
        if parts.images and self._image_tokens is None:
            return (
                f"the body holds an image, which {WITHOUT_BOUND} at {self._model}: state how many tokens one counts at "
                "most, in a job file (endpoints: price: {image_tokens: N}), or run without --budget-usd"
            )
        most = parts.most_input_tokens(len(body.content), self._image_tokens or 0)
        return body.replaced(surplus_tokens=most - len(body.content))

    def _price(self, body: Body) -> Price | None:
        if self._stated is not None or self._preset is None:
            return self._stated
        model = body.model or self._model
        tier = decode_json(body.content).get("service_tier") if b'"service_tier"' in body.content else self._tier
        key = (model, tier if isinstance(tier, str) else None)
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            context = {"service_tier": tier} if isinstance(tier, str) else {}
            self._known[key] = price_of(model, self._preset, today=self._today, context=context)
        return self._known[key]
