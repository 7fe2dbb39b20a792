"""Usage -> USD: what a model's tokens cost, as the job states it or as the bundled `genai-prices` data has it.

Must not know requests, lanes or budgets, and never asks the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rowmill.records import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

PER_UNIT: Mapping[str, float] = {"1M": 1e6, "1K": 1e3, "token": 1.0}

# The dearest model on offer is below 1,000 USD for a million tokens, the cheapest above a hundredth of a cent.
_MOST_USD_PER_1M = 1000.0
_LEAST_USD_PER_1M = 0.0001
# What is kept for an hour costs twice the input, for five minutes 1.25 times (Anthropic).
_HOUR_FACTOR = 2 / 1.25
# Models that answer with numbers, whose output costs nothing; that of any other one without a price is unknown.
_GIVES_NUMBERS = re.compile(r"embed|rerank|(^|[/-])(bge|gte|voyage)-", re.ASCII)
# Presets that the price data knows under another name; the others are called the same or are not there.
_PROVIDERS: Mapping[str, str] = {
    "gemini": "google",
    "moonshot": "moonshotai",
    "xai": "x-ai",
    "zhipu": "zhipuai",
}


@dataclass(frozen=True, slots=True)
class PriceSpec:
    """A price as a job states it: USD for one `unit` of tokens.

    What is not stated costs as much as `input` (cached_input, cache_write) or `output` (reasoning), `cache_write_1h`
    1.6 times `cache_write`.  `batch` is the share of every price that is paid for batch processing (0.5: half).
    Raises ValueError for a price that is negative or no number.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    batch: float | None = None
    unit: Literal["1M", "1K", "token"] = "1M"
    cache_write_1h: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in PER_UNIT:
            raise ValueError(f"unit must be one of {', '.join(PER_UNIT)}, not {self.unit!r}")
        for name, value in self._stated():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, not {value}")
        if self.batch is not None and not 0 <= self.batch <= 1:
            raise ValueError(f"batch is the share that is paid, between 0 and 1, not {self.batch}")

    def _stated(self) -> list[tuple[str, float]]:
        names = ("input", "output", "cached_input", "cache_write", "cache_write_1h", "reasoning")
        return [(name, getattr(self, name)) for name in names if getattr(self, name) is not None]

    def _rates(self, share: float) -> Rates:
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        kept = written * _HOUR_FACTOR if self.cache_write_1h is None else self.cache_write_1h
        thought = self.output if self.reasoning is None else self.reasoning
        per = share / PER_UNIT[self.unit]
        return Rates(self.input * per, cached * per, written * per, self.output * per, thought * per, kept * per)


class Rates(NamedTuple):
    """USD a token; `cache_write_1h` is what is kept for an hour."""

    input: float
    cached_input: float
    cache_write: float
    output: float
    reasoning: float
    cache_write_1h: float = 0.0


class Price:
    """What one model's tokens cost.

    `tiers` are (input tokens, rates), rising, the first at 0: a request with more input tokens than a tier's
    pays that tier's rates for all of its tokens.  `source` says where the price comes from.
    """

    __slots__ = ("_base", "_base_until", "_is_free", "_per_request_usd", "_tiers", "_worst", "_worst_1h", "source")

    def __init__(self, tiers: tuple[tuple[int, Rates], ...], source: str, per_request_usd: float = 0.0) -> None:
        self.source = source
        self._tiers = tiers
        self._base = tiers[0][1]
        self._base_until = tiers[1][0] if len(tiers) > 1 else float("inf")
        self._per_request_usd = per_request_usd
        self._is_free = per_request_usd == 0.0 and not any(any(rates) for _, rates in tiers)
        # Fewer tokens than bytes may fall into a cheaper tier, so the worst case is over all tiers up to there.
        self._worst = tuple(accumulate((_worst(rates) for _, rates in tiers), _dearer))
        kept = ((max(_worst(rates)[0], rates.cache_write_1h), _worst(rates)[1]) for _, rates in tiers)
        self._worst_1h = tuple(accumulate(kept, _dearer))

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        return self._is_free

    @property
    def tiers(self) -> tuple[tuple[int, Rates], ...]:
        """The rates by size of the input."""
        return self._tiers

    def cost(self, usage: Usage) -> float | None:
        """USD of one request; None where the tokens are unknown (unless they cost nothing)."""
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        if input_tokens is None or output_tokens is None:
            return 0.0 if self._is_free else None
        rates = self._base if input_tokens <= self._base_until else self._rates_at(input_tokens)
        total = self._per_request_usd
        if cached := usage.cached_input_tokens:
            cached = min(cached, input_tokens)
            input_tokens -= cached
            total += cached * rates[1]
        if written := usage.cache_write_tokens:
            written = min(written, input_tokens)
            input_tokens -= written
            kept = min(usage.cache_write_1h_tokens or 0, written)
            total += (written - kept) * rates[2] + kept * rates[5]
        if thought := usage.reasoning_tokens:
            thought = min(thought, output_tokens)
            output_tokens -= thought
            total += thought * rates[4]
        return total + input_tokens * rates[0] + output_tokens * rates[3]

    def worst_case(self, input_tokens: int, max_tokens: int, *, keeps_1h: bool = False) -> float:
        """The most that a request can cost, in USD; `keeps_1h`: it may write to a cache that is kept for an hour."""
        at = 0
        while at + 1 < len(self._tiers) and input_tokens > self._tiers[at + 1][0]:
            at += 1
        per_input, per_output = (self._worst_1h if keeps_1h else self._worst)[at]
        return self._per_request_usd + input_tokens * per_input + max_tokens * per_output

    def _rates_at(self, input_tokens: int) -> Rates:
        return next(rates for start, rates in reversed(self._tiers) if input_tokens > start)


def _worst(rates: Rates) -> tuple[float, float]:
    return max(rates.input, rates.cached_input, rates.cache_write), max(rates.output, rates.reasoning)


def _dearer(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return max(one[0], other[0]), max(one[1], other[1])


def implausible(spec: PriceSpec) -> str | None:
    """What is odd about a stated price, for the user; None when it may well be right."""
    for name, value in spec._stated():
        per_1m = value / PER_UNIT[spec.unit] * 1e6
        said = f"price.{name} of {value:g} for {_worded(spec.unit)}"
        if per_1m > _MOST_USD_PER_1M:
            return f"{said} is {per_1m:,.0f} USD for a million tokens; is it meant for another unit (unit: 1M)?"
        if 0 < per_1m < _LEAST_USD_PER_1M:
            return f"{said} is next to nothing; is it meant for another unit (unit: token, unit: 1K)?"
    if spec.cached_input is not None and spec.cached_input > spec.input:
        return f"price.cached_input of {spec.cached_input:g} is above price.input of {spec.input:g}"
    return None


def _worded(unit: str) -> str:
    return {"1M": "a million tokens", "1K": "a thousand tokens", "token": "one token"}[unit]


def price_of(
    model: str,
    preset: str | None,
    override: PriceSpec | None = None,
    *,
    today: date,
    context: Mapping[str, str] | None = None,
) -> Price | None:
    """The price of a model, None when it is unknown.  Look it up once a model, not once a row.

    `model` is the name without its preset.  `context` names what changes the price: `service_tier` as sent, or
    `processing: batch`.  Of prices that depend on the hour, the dearest of the day counts.
    """
    if override is not None:
        is_batch = context is not None and context.get("processing") == "batch"
        share = override.batch if is_batch and override.batch is not None else 1.0
        return Price(((0, override._rates(share)),), "stated in the job")
    if preset is None:
        return None
    found = _model(model, _PROVIDERS.get(preset, preset))
    if found is None:
        return None
    days = [datetime.combine(today, time(hour, 15), UTC) for hour in range(24)]
    prices = [_tiered(found.get_prices(moment, dict(context or {})), preset, model) for moment in days]
    known = [price for price in prices if price is not None]
    return max(known, key=lambda price: sum(price.tiers[0][1]), default=None)


def _model(model: str, provider_id: str) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot

    providers = get_snapshot().providers
    provider = next((one for one in providers if one.id == provider_id), None)
    return None if provider is None else provider.find_model(model, all_providers=providers)


def _tiered(prices: ModelPrice, preset: str, model: str) -> Price | None:
    """The token prices of one model; None where it is not paid for by the token alone."""
    output: Any = prices.output_mtok
    if output is None and _GIVES_NUMBERS.search(model.lower()):
        output = 0
    if prices.input_mtok is None or output is None:
        return None
    written: Any = prices.input_mtok if prices.cache_write_mtok is None else prices.cache_write_mtok
    columns: list[Any] = [
        prices.input_mtok,
        prices.input_mtok if prices.cache_read_mtok is None else prices.cache_read_mtok,
        written,
        output,
        output if prices.output_reasoning_mtok is None else prices.output_reasoning_mtok,
        written if prices.cache_write_1h_mtok is None else prices.cache_write_1h_mtok,
    ]
    starts = {0} | {tier.start for column in columns for tier in getattr(column, "tiers", ())}
    tiers = tuple((start, Rates(*(_at(column, start) / 1e6 for column in columns))) for start in sorted(starts))
    per_request: Any = prices.requests_kcount or 0
    return Price(tiers, f"genai-prices: {preset}/{model}", _at(per_request, 0) / 1e3)


def _at(column: Any, start: int) -> float:
    """A price in the tier that begins at `start`."""
    found = getattr(column, "base", column)
    for tier in getattr(column, "tiers", ()):
        if tier.start <= start and start > 0:
            found = tier.price
    return float(found)
