"""From the job's endpoints to providers over transports: resolves presets and keys, opens, closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rowmill.answers import AnswerSchema
from rowmill.engine.gate import RateGate
from rowmill.engine.lane import LaneConfig
from rowmill.errors import JobError
from rowmill.job import EndpointSpec, Job
from rowmill.limits.rate import Limits, RateLimiter
from rowmill.limits.tokens import TokenEstimate
from rowmill.ports import Clock, Provider
from rowmill.prices import Price
from rowmill.providers.credentials import Credentials, redact
from rowmill.providers.presets import ResolvedEndpoint, resolve
from rowmill.records import Failure, RawReply, Request
from rowmill.transport import open_transport

if TYPE_CHECKING:
    from rowmill.ports import Transport
    from rowmill.providers.http import HttpShape

LOOPBACK = "http://127.0.0.1"  # where the embedded model will be


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of the job with its address, key and price (None: unknown); `name` is what `_endpoint` shows.

    `given` is a provider that there is already (a function): none is opened then.
    """

    spec: EndpointSpec
    resolved: ResolvedEndpoint
    credentials: Credentials
    price: Price | None = None
    given: WritingProvider | None = None

    @property
    def name(self) -> str:
        return self.spec.model

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def address(self) -> str:
        return self.resolved.host

    def lane_config(
        self, job: Job, most_in_flight: int, worst_usd: Callable[[Request], float] | None = None
    ) -> LaneConfig:
        """What the engine is told."""
        return LaneConfig(
            self.name,
            self.resolved.model,
            self.spec.pinned,
            most_in_flight,
            job.timeout_s,
            job.max_outage_s,
            self.price,
            worst_usd,
            self.resolved.first_in_flight,
        )

    def gate(self, clock: Clock) -> RateGate:
        """The way into the endpoint's quota."""
        spec = self.spec
        stated = Limits(spec.rpm, spec.tpm, spec.input_tpm, spec.output_tpm)
        estimate = TokenEstimate(counts_max_tokens=self.resolved.counts == "max_tokens")
        limiter = RateLimiter(stated, spec.headroom)
        return RateGate(limiter, clock, stated=stated, estimate=estimate, dialect=self.resolved.dialect)


def resolve_endpoints(job: Job) -> list[Endpoint]:
    """Resolves presets and reads keys; raises JobError with everything that is missing."""
    faults: list[str] = []
    endpoints = []
    for spec in job.endpoints:
        try:
            resolved = resolve(spec.model, spec.url, key_env=spec.key_env)
            credentials = Credentials(resolved, key_file=spec.key_file, headers=spec.headers)
            endpoint = Endpoint(spec, resolved, credentials)
            if resolved.provider == "http":
                make_provider(NoTransport(), endpoint, None)  # finds what is wrong with body and paths
            endpoints.append(endpoint)
        except JobError as error:
            faults.extend(error.faults)
    if faults:
        raise JobError(*faults)
    return endpoints


def redactor(endpoints: Sequence[Endpoint]) -> Callable[[bytes], bytes]:
    """Takes the keys of all endpoints out of bytes, also keys that are read anew while the run lasts."""

    def clean(content: bytes) -> bytes:
        for endpoint in endpoints:
            content = redact(content, endpoint.credentials.secrets)
        return content

    return clean


@asynccontextmanager
async def open_providers(
    job: Job, schema: AnswerSchema | None, endpoints: Sequence[Endpoint]
) -> AsyncIterator[list[WritingProvider]]:
    """One provider an endpoint, in order; everything is closed at the end."""
    async with AsyncExitStack() as stack:
        providers: list[WritingProvider] = []
        for endpoint in endpoints:
            provider = await _open(job, schema, endpoint, stack)
            stack.push_async_callback(provider.close)
            providers.append(provider)
        yield providers


async def _open(job: Job, schema: AnswerSchema | None, endpoint: Endpoint, stack: AsyncExitStack) -> WritingProvider:
    if endpoint.given is not None:
        return endpoint.given
    transport = open_transport(
        endpoint.resolved.url or LOOPBACK, connect_timeout_s=job.connect_timeout_s, ca_file=endpoint.spec.ca_file
    )
    stack.push_async_callback(transport.close)
    if endpoint.resolved.provider == "local":
        from rowmill.providers.local import LocalProvider

        return await LocalProvider.open(transport, endpoint.resolved, schema)
    return make_provider(transport, endpoint, schema)


def make_provider(transport: Transport, endpoint: Endpoint, schema: AnswerSchema | None) -> WritingProvider:
    """The provider that speaks the endpoint's dialect; for the embedded model the one that reads its replies."""
    if endpoint.resolved.provider == "anthropic":
        from rowmill.providers.anthropic import AnthropicProvider

        return AnthropicProvider(transport, endpoint.resolved, endpoint.credentials, schema)
    if endpoint.resolved.provider == "http":
        from rowmill.providers.http import HttpProvider

        return HttpProvider(transport, endpoint.resolved, endpoint.credentials, schema, shape=shape_of(endpoint.spec))
    from rowmill.providers.openai import OpenAIProvider

    return OpenAIProvider(transport, endpoint.resolved, endpoint.credentials, schema)


def shape_of(spec: EndpointSpec) -> HttpShape:
    """The shape of a server of its own kind, as the job states it."""
    from rowmill.providers.http import HttpShape

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
