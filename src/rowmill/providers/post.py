"""Posts one body to an endpoint with its credentials.  Must not know what the body says."""

from __future__ import annotations

from dataclasses import dataclass

from rowmill.ports import Transport
from rowmill.providers.credentials import Credentials, redact
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import Failure, RawReply


@dataclass(frozen=True, slots=True)
class Post:
    """One endpoint's address, key and connections.  The transport stays its owner's."""

    transport: Transport
    endpoint: ResolvedEndpoint
    credentials: Credentials

    async def send(self, body: bytes, timeout_s: float) -> RawReply | Failure:
        """See `ports.Transport.send`.  Keys that the server echoes are taken out of the reply."""
        credentials = self.credentials
        raw = await self.transport.send(self.endpoint.url, credentials.headers, body, timeout_s)
        if isinstance(raw, Failure):
            return raw
        clean = redact(raw.body, credentials.secrets)
        return raw if clean is raw.body else raw._replace(body=clean)
