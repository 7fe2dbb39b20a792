"""From the job's endpoints to providers over transports: resolves presets and keys, opens, closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rowmill.core.limits.rate import Limits, RateLimiter
from rowmill.core.limits.token_estimate import TokenEstimate
from rowmill.core.pricing.prices import Price
from rowmill.engine.lane_config import LaneConfig
from rowmill.engine.rate_gate import RateGate
from rowmill.errors import JobError
from rowmill.io.http import open_transport
from rowmill.job import EndpointSpec, Job
from rowmill.job.model import endpoint_names
from rowmill.ports import AnswerReader, Clock, Provider
from rowmill.providers.credentials import Credentials, redact
from rowmill.providers.presets import ResolvedEndpoint, resolve
from rowmill.records import Failure, RawReply, Request
from rowmill.store.table_rows import Redact

if TYPE_CHECKING:
    from rowmill.ports import Transport
    from rowmill.providers.custom_http import HttpShape

TAKES_BODIES = ("openai", "local")  # providers that a batch file's bodies can be sent to
LOOPBACK = "http://127.0.0.1"  # where the embedded model will be


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of the job with its URL, key and price (None: unknown); `name` is what `_endpoint` shows.

    `given` is a provider that there is already (a function): none is opened then.  Endpoints with one `quota` spend
    the same one.
    `batch`: what is sent are the bodies of a batch file.
    """

    spec: EndpointSpec
    resolved: ResolvedEndpoint
    credentials: Credentials
    price: Price | None = None
    given: WritingProvider | None = None
    label: str | None = None
    quota: object = None
    batch: bool = False

    @property
    def name(self) -> str:
        return self.label or self.spec.model

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def host(self) -> str:
        return self.resolved.host

    def lane_config(
        self, job: Job, most_in_flight: int, worst_usd: Callable[[Request], float] | None = None
    ) -> LaneConfig:
        """What the engine is told."""
        return LaneConfig(
            name=self.name,
            model=self.resolved.model,
            in_flight=self.spec.fixed_in_flight,
            most_in_flight=most_in_flight,
            timeout_s=job.timeout_s,
            max_outage_s=job.max_outage_s,
            price=self.price,
            worst_usd=worst_usd,
            pin=self.spec.pin,
            first_in_flight=self.resolved.first_in_flight,
        )

    @property
    def stated(self) -> Limits:
        """The limits that the job states."""
        spec = self.spec
        return Limits(spec.rpm, spec.tpm, spec.input_tpm, spec.output_tpm)

    def gate(self, clock: Clock, limiter: RateLimiter | None = None, stated: Limits | None = None) -> RateGate:
        """The way into the endpoint's quota, which others share by `limiter`; `stated` is what any of them says."""
        stated = stated or self.stated
        estimate = TokenEstimate(counts_max_tokens=self.resolved.counts == "max_tokens")
        limiter = limiter or RateLimiter(stated, self.spec.headroom)
        return RateGate(limiter, clock, stated=stated, estimate=estimate, dialect=self.resolved.dialect)


def gates(endpoints: Sequence[Endpoint], clock: Clock) -> list[RateGate]:
    """One a endpoint, in order; those that spend one quota share its limiter, whichever of them states its limits."""
    limits: dict[object, Limits] = {}
    for endpoint in endpoints:
        limits[endpoint.quota] = limits.get(endpoint.quota, Limits()).or_else(endpoint.stated)
    limiters: dict[object, RateLimiter] = {}
    for endpoint in endpoints:
        if endpoint.quota not in limiters:
            limiters[endpoint.quota] = RateLimiter(limits[endpoint.quota], endpoint.spec.headroom)
    return [endpoint.gate(clock, limiters[endpoint.quota], limits[endpoint.quota]) for endpoint in endpoints]


def resolve_endpoints(job: Job) -> list[Endpoint]:
    """Resolves presets and reads keys; raises JobError with everything that is missing."""
    faults: list[str] = []
    endpoints = []
    for spec, label in zip(job.endpoints, endpoint_names(job.endpoints), strict=True):
        try:
            resolved = resolve(spec.model, spec.url, key_env=spec.key_env)
            if job.is_batch and resolved.provider not in TAKES_BODIES:
                raise JobError(
                    f"{spec.model} speaks a dialect of its own, and the bodies of a batch file are OpenAI's; "
                    "name an OpenAI-compatible endpoint, or give -p/--prompt"
                )
            credentials = Credentials(resolved, key_file=spec.key_file, headers=spec.headers)
            endpoint = Endpoint(spec, resolved, credentials, label=label, batch=job.is_batch)
            if resolved.provider == "http":
                make_provider(NoTransport(), endpoint, None)  # finds what is wrong with body and paths
            endpoints.append(endpoint)
        except JobError as error:
            faults.extend(error.faults)
    if faults:
        raise JobError(*faults)
    return _with_quotas(endpoints)


def _with_quotas(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Says who spends one quota: the same `quota`, or the same key at the same host.

    Limits that differ are not of one quota, so such endpoints share none unless they are told to; then they are
    refused.
    """
    found: dict[object, list[Limits]] = {}
    faults: list[str] = []
    keyed: list[Endpoint] = []
    for endpoint in endpoints:
        named = endpoint.spec.quota
        quota: object = named or (endpoint.resolved.host, frozenset(endpoint.credentials.secrets))
        stated = found.setdefault(quota, [])
        if endpoint.stated != Limits():
            if any(other != endpoint.stated for other in stated):
                if named is not None:
                    faults.append(f"{endpoint.name}: states other limits than the endpoints that share quota `{named}`")
                quota = (quota, endpoint.stated)
            stated.append(endpoint.stated)
        keyed.append(replace(endpoint, quota=quota))
    if faults:
        raise JobError(*faults)
    return keyed


def redactor(endpoints: Sequence[Endpoint]) -> Redact:
    """Takes the keys of all endpoints out of what is stored, also keys that are read anew while the run lasts."""

    def clean(contents: Sequence[bytes | None]) -> Sequence[bytes | None]:
        secrets = [secret for endpoint in endpoints for secret in endpoint.credentials.secrets]
        if not secrets:
            return contents
        return [None if content is None else redact(content, secrets) for content in contents]

    return clean


@asynccontextmanager
async def open_providers(
    job: Job, schema: AnswerReader | None, endpoints: Sequence[Endpoint]
) -> AsyncIterator[list[WritingProvider]]:
    """One provider an endpoint, in order; everything is closed at the end."""
    async with AsyncExitStack() as stack:
        providers: list[WritingProvider] = []
        for endpoint in endpoints:
            provider = await _open(job, schema, endpoint, stack)
            stack.push_async_callback(provider.close)
            providers.append(provider)
        yield providers


async def _open(job: Job, schema: AnswerReader | None, endpoint: Endpoint, stack: AsyncExitStack) -> WritingProvider:
    if endpoint.given is not None:
        return endpoint.given
    transport = open_transport(
        endpoint.resolved.url or LOOPBACK,
        connect_timeout_s=job.connect_timeout_s,
        ca_file=endpoint.spec.ca_file,
        resends=job.budget_usd is None,  # each send is reserved for
    )
    stack.push_async_callback(transport.close)
    if endpoint.resolved.provider == "local":
        from rowmill.providers.local import LocalProvider

        return await LocalProvider.open(transport, endpoint.resolved, schema, batch=endpoint.batch)
    return make_provider(transport, endpoint, schema)


def make_provider(transport: Transport, endpoint: Endpoint, schema: AnswerReader | None) -> WritingProvider:
    """The provider that speaks the endpoint's dialect; for the embedded model the one that reads its replies."""
    if endpoint.batch:
        from rowmill.providers.openai_bodies import BatchProvider

        return BatchProvider(transport, endpoint.resolved, endpoint.credentials)
    if endpoint.resolved.provider == "anthropic":
        from rowmill.providers.anthropic import AnthropicProvider

        return AnthropicProvider(transport, endpoint.resolved, endpoint.credentials, schema)
    if endpoint.resolved.provider == "http":
        from rowmill.providers.custom_http import HttpProvider

        return HttpProvider(transport, endpoint.resolved, endpoint.credentials, schema, shape=shape_of(endpoint.spec))
    from rowmill.providers.openai import OpenAIProvider

    return OpenAIProvider(transport, endpoint.resolved, endpoint.credentials, schema)


def shape_of(spec: EndpointSpec) -> HttpShape:
    """The shape of a server of its own kind, as the job states it."""
    from rowmill.providers.custom_http import HttpShape

    stated = {} if spec.http is None else spec.http.model_dump(exclude_none=True)
    return HttpShape(**stated)


class WritingProvider(Provider, Protocol):
    """A provider that can also say what it would send."""

    def body(self, request: Request) -> bytes:
        """The request's body."""


class NoTransport:
    """For providers that only read or only write: nothing is sent through it."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> RawReply | Failure:
        raise AssertionError("nothing is sent here")

    async def close(self) -> None:
        """Holds nothing."""
