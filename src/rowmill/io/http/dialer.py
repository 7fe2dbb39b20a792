"""Opens connections to one origin: name, address, TLS; must not know what they are for.

The one module where faults of connecting become Failures.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from ipaddress import ip_address
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from rowmill.core.replies import failures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowmill.io.http.origin import Origin
    from rowmill.records import Failure

_REMEMBER_S = 30.0
_NEXT_ADDRESS_S = 2.0

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class Dialer:
    """Connects to `origin`, over TLS where `context` is given; the name is looked up once for many connections.

    Several addresses are tried one after the other, each but the last for two seconds; the one that answered
    goes first from then on.
    """

    def __init__(self, origin: Origin, context: ssl.SSLContext | None, connect_timeout_s: float) -> None:
        self._origin = origin
        self._context = context
        self._connect_timeout_s = connect_timeout_s
        self._addresses: list[str] = [origin.host] if _is_address(origin.host) else []
        self._fresh_until_s = float("inf") if self._addresses else 0.0
        self._looking_up: asyncio.Task[Sequence[str] | OSError | UnicodeError] | None = None

    async def dial(self, make: Callable[[], ProtocolT]) -> ProtocolT | Failure:
        """A connected protocol, or why there is none.  `make` is called once an address that is tried."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._dial(make)
        except TimeoutError:
            return failures.unreachable(self._origin.name, f"no connection within {self._connect_timeout_s:g} s")
        except ssl.SSLCertVerificationError as fault:
            return failures.untrusted(self._origin.name, fault.verify_message)
        except ssl.SSLError as fault:
            return failures.untrusted(self._origin.name, (fault.reason or "no TLS there").replace("_", " ").lower())
        except socket.gaierror as fault:
            return failures.unreachable(self._origin.name, f"the name cannot be resolved: {fault.strerror}")
        except ValueError:
            return failures.unreachable(self._origin.name, "it is not a valid name")
        except OSError as fault:
            why = os.strerror(fault.errno) if fault.errno else "the connection was lost in the handshake"
            return failures.unreachable(self._origin.name, why)

    async def _dial(self, make: Callable[[], ProtocolT]) -> ProtocolT:
        await self._look_up()
        *others, last = self._addresses
        for address in others:
            try:
                async with asyncio.timeout(_NEXT_ADDRESS_S):
                    return await self._dial_address(address, make)
            except ssl.SSLError:
                raise
            except OSError:  # TimeoutError is one, too
                continue
        return await self._dial_address(last, make)

    async def _dial_address(self, address: str, make: Callable[[], ProtocolT]) -> ProtocolT:
        loop = asyncio.get_running_loop()
        name = self._origin.host if self._context is not None else None
        _, protocol = await loop.create_connection(
            make, address, self._origin.port, ssl=self._context, server_hostname=name
        )
        if address in self._addresses[1:]:
            self._addresses = [address, *(other for other in self._addresses if other != address)]
        return protocol

    async def _look_up(self) -> None:
        if perf_counter() < self._fresh_until_s:
            return
        if self._looking_up is None:
            self._looking_up = asyncio.create_task(self._resolve())
        # Shielded, as others wait for the same.
        found = await asyncio.shield(self._looking_up)
        self._looking_up = None
        if isinstance(found, OSError | UnicodeError):
            raise found
        kept = [address for address in self._addresses[:1] if address in found]
        self._addresses = [*kept, *(address for address in found if address not in kept)]
        self._fresh_until_s = perf_counter() + _REMEMBER_S

    async def _resolve(self) -> Sequence[str] | OSError | UnicodeError:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._origin.host, self._origin.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as fault:
            return fault
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def close(self) -> None:
        """Ends a look-up that still runs."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            await asyncio.wait([self._looking_up])


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
