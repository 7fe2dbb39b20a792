"""Posts one body to an endpoint with its credentials.  Must not know what the body says."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rowmill.ports import Transport
from rowmill.providers.credentials import Credentials, redact
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import Failure, RawReply


@dataclass(frozen=True, slots=True)
class Post:
    """One endpoint's URL, key and connections.  The transport stays its owner's."""

    transport: Transport
    endpoint: ResolvedEndpoint
    credentials: Credentials

    def send(self, body: bytes, timeout_s: float) -> Coroutine[Any, Any, RawReply | Failure]:
        """See `ports.Transport.send`.  Keys that the server echoes are taken out of the reply."""
        if self.credentials.secrets:
            return self._send_cleaned(body, timeout_s)
        return self.transport.send(self.endpoint.url, self.credentials.headers, body, timeout_s)

    async def _send_cleaned(self, body: bytes, timeout_s: float) -> RawReply | Failure:
        credentials = self.credentials
        raw = await self.transport.send(self.endpoint.url, credentials.headers, body, timeout_s)
        if isinstance(raw, Failure):
            return raw
        clean = redact(raw.body, credentials.secrets)
        return raw if clean is raw.body else raw.replaced(body=clean)
