"""Runs the simulator: in a thread of its own for tests, or on a given loop; decides no answer."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

from rowmill.simulator.behaviour import Behaviour
from rowmill.simulator.desk import ServerDesk
from rowmill.simulator.protocol import Connection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


class Listener:
    """The listening socket of one desk; closes and opens it again for outages.  Lives on one loop."""

    def __init__(self, behaviour: Behaviour, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.desk = ServerDesk(behaviour, self._schedule_outages)
        self._host = host
        self._tls = tls
        self.port = port
        self._server: asyncio.AbstractServer | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._reopening: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listens; port 0 takes a free one, which it then keeps."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self.desk), self._host, self.port, ssl=self._tls, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Closes the socket and resets every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.desk.connections):
            connection.reset()

    async def close(self) -> None:
        """Closes for good."""
        for timer in self._timers:
            timer.cancel()
        for task in list(self._reopening):
            task.cancel()
        self.refuse()

    def _schedule_outages(self) -> None:
        loop = asyncio.get_running_loop()
        for outage in self.desk.behaviour.outages:
            if outage.kind == "refuse":
                self._timers.append(loop.call_later(outage.start_s, self.refuse))
                self._timers.append(loop.call_later(outage.end_s, self._reopen))

    def _reopen(self) -> None:
        task = asyncio.get_running_loop().create_task(self.open())
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)


class Simulator:
    """A simulator in a thread of its own, on a free port; its methods may be called from any thread.

    `url` is the base URL (with `/v1`), `root` the same without.  Starts on `with` or `start()`.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = Listener(behaviour or Behaviour(), host, port, tls)
        self._host = host
        self._scheme = "https" if tls else "http"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def root(self) -> str:
        return f"{self._scheme}://{self._host}:{self._listener.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> None:
        """Returns once it listens; raises OSError when the port is taken."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="simulator", daemon=True)
        self._thread.start()
        started.result()

    def _run(self, started: Future[None]) -> None:
        loop = new_loop()
        self._loop = loop
        try:
            loop.run_until_complete(self._listener.open())
        except OSError as fault:
            loop.close()
            started.set_exception(fault)
            return
        started.set_result(None)
        loop.run_forever()
        loop.run_until_complete(self._listener.close())
        # One more turn, so that the resets reach the sockets.
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    def stop(self) -> None:
        """Resets what is open and ends the thread."""
        if self._thread is not None and self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._thread = None

    def counters(self) -> dict[str, Any]:
        """What it saw; see `Counters.report`."""
        report: dict[str, Any] = self._call(lambda: self._listener.desk.counters.report())
        return report

    def reset(self) -> None:
        """Forgets what it saw."""
        self._call(self._listener.desk.reset)

    def change(self, **settings: Any) -> None:
        """Replaces settings of the behaviour while it runs."""
        self._call(lambda: self._listener.desk.change(settings))

    def _call(self, function: Callable[[], Any]) -> Any:
        assert self._loop is not None, "the simulator is not started"
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except (TypeError, ValueError) as fault:
                result.set_exception(fault)

        self._loop.call_soon_threadsafe(run)
        return result.result()


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
