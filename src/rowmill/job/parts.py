"""What the job's models are made of: their base, and what an endpoint costs and how one of its own kind is asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue, model_validator

from rowmill.core.pricing.prices import PriceSpec
from rowmill.job import checks
from rowmill.job.checks import in_range
from rowmill.job.option_table import default

Text = Annotated[str, AfterValidator(checks.not_blank)]


class Part(BaseModel):
    """Frozen and strict; a key without a value (`timeout_s: null`) means its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values


class PriceTag(Part):
    """What tokens cost, in USD for one `unit` of them; see `prices.PriceSpec`."""

    input: Annotated[float, in_range("endpoints[].price.input")]
    output: Annotated[float, in_range("endpoints[].price.output")]
    cached_input: Annotated[float, in_range("endpoints[].price.cached_input")] | None = None
    cache_write: Annotated[float, in_range("endpoints[].price.cache_write")] | None = None
    cache_write_1h: Annotated[float, in_range("endpoints[].price.cache_write_1h")] | None = None
    reasoning: Annotated[float, in_range("endpoints[].price.reasoning")] | None = None
    batch: Annotated[float, in_range("endpoints[].price.batch")] | None = None
    image_tokens: Annotated[int, in_range("endpoints[].price.image_tokens")] | None = None
    unit: Literal["1M", "1K", "token"] = default("endpoints[].price.unit")

    @property
    def spec(self) -> PriceSpec:
        """The price as the rules know it."""
        return PriceSpec(**self.model_dump(exclude={"image_tokens"}))


class HttpSpec(Part):
    """What a server of its own kind takes, and where its answer stands; see `providers.http.HttpShape`."""

    body: dict[str, JsonValue] | None = None
    answer: Text | None = None
    reasoning: Text | None = None
    finish: Text | None = None
    input_tokens: Text | None = None
    output_tokens: Text | None = None
