"""Calls a function or a LangChain Runnable as if it were an endpoint; must not know lanes, retries or run files.

A request carries the row's item, and the reply's body is what the function made of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rowmill.core.replies import failures
from rowmill.core.rows import codec
from rowmill.core.shortening import shortened
from rowmill.errors import FailureKind
from rowmill.providers.threads import Threads
from rowmill.records import Failure, Item, RawReply, Reply, Request, Row

SLOT_WAIT_S = 600.0
ENDLESS_S = 86_400.0 * 29  # a longer deadline is none, and has no timer
MESSAGE_CHARS = 300
_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Passing:
    """Hands the row's item on; implements `ports.RequestBuilder`.  `item_of` finds it in the row's values."""

    item_of: Callable[[Mapping[str, Any]], Any]

    @property
    def columns(self) -> None:
        """An item may be made of any column."""
        return None

    def check_columns(self, columns: Iterable[str]) -> None:
        """None is needed."""

    def request(self, row: Row, params: Mapping[str, object]) -> Request:
        """The row's item."""
        return Request((), params, item=Item(row.index, self.item_of(row.values)))

    def is_blank(self, row: Row) -> bool:
        """An item is never blank."""
        return False


class AsItIs:
    """A function's value is valid as it is; implements `ports.AnswerReader`."""

    __slots__ = ()

    columns: tuple[tuple[str, str], ...] = (("answer", "json"),)
    strict = False
    json_schema: Mapping[str, Any] = {}

    def read(self, text: str) -> Mapping[str, Any] | str:
        """The value.  A subclass of str stands as text, so that exports show it, with its class beside."""
        return codec.readable(text) or {"answer": msgspec.Raw(text.encode())}


@dataclass(slots=True)
class Outlet:
    """Where values go and what the caller asks about afterwards.

    `write` turns a value into the body that is stored; it may raise, which ends the run.  `errors` holds the last
    exception of each row that has not succeeded, `fatal` a cancellation that came from the function itself.
    """

    write: Callable[[int, Any], bytes]
    errors: dict[int, Exception]
    fatal: BaseException | None = None


class CallableProvider:
    """One function with its own concurrency; implements `ports.Provider`.

    `most` bounds the threads of a blocking function.  With `by_status` an exception that carries an HTTP status
    counts as that reply would; every other one, and all without it, use up an attempt.  A function that has
    `takes_row` is called with the row's index and the item as a pair.
    """

    def __init__(self, function: Any, outlet: Outlet, *, most: int, by_status: bool = True) -> None:
        self._outlet = outlet
        self._by_status = by_status
        self._takes_row = bool(getattr(function, "takes_row", False))
        self._start = _async_of(function)
        self._blocking: Callable[[Any], Any] = _blocking_of(function)
        self._threads = Threads(most)
        self._slots = asyncio.Semaphore(most)

    async def send(self, request: Request, timeout_s: float) -> RawReply | Failure:
        """Calls the function with the row's item."""
        passed = request.item
        assert passed is not None
        item = (passed.index, passed.value) if self._takes_row else passed.value
        started = time.perf_counter()
        try:
            if self._start is not None:
                value = await self._awaited(self._start, item, timeout_s)
            else:
                if not await self._took_slot():
                    return Failure(FailureKind.UNREACHABLE, "every thread is still at a call that has timed out")
                has_returned, value = await self._in_thread(item, timeout_s)
                if not has_returned:
                    raise value
                if inspect.isawaitable(value):
                    left_s = timeout_s - (time.perf_counter() - started)
                    value = await self._awaited(lambda _: value, item, max(left_s, 0.001))
        except Exception as error:  # the caller's function may raise anything
            return self._failed(passed.index, error, time.perf_counter() - started)
        if self._outlet.errors:
            self._outlet.errors.pop(passed.index, None)
        body = self._outlet.write(passed.index, value)
        return RawReply(200, _HEADERS, body, time.perf_counter() - started)

    def read(self, raw: RawReply) -> Reply | Failure:
        """The stored value's text, which `AsItIs` takes as it is."""
        return Reply(raw.body.decode())

    def body(self, request: Request) -> bytes:
        """Nothing goes over a wire."""
        return b""

    def reload_credentials(self) -> bool:
        """There are none."""
        return False

    async def close(self) -> None:
        """Lets the threads end."""
        self._threads.close()

    async def _awaited(self, start: Callable[[Any], Awaitable[Any]], item: Any, timeout_s: float) -> Any:
        """In a context of its own.  A call that never waits still lets others have their turn after it."""
        call = InOwnContext(start(item))
        try:
            if timeout_s >= ENDLESS_S:
                value = await call
            else:
                async with asyncio.timeout(timeout_s) as deadline:
                    value = await call
        except asyncio.CancelledError as error:
            if not _is_cancelled():
                self._outlet.fatal = error
            raise
        except TimeoutError:
            if timeout_s < ENDLESS_S and deadline.expired():
                raise _timed_out(timeout_s) from None
            raise
        if not call.has_waited:
            await asyncio.sleep(0)
        return value

    async def _took_slot(self) -> bool:
        """Waits for a thread: one that has timed out keeps its slot until it ends."""
        if not self._slots.locked():
            return await self._slots.acquire()
        try:
            async with asyncio.timeout(SLOT_WAIT_S):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def _in_thread(self, item: Any, timeout_s: float) -> tuple[bool, Any]:
        """Whether the function returned, and what; or what it raised."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[bool, Any]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                outcome = (True, context.run(self._blocking, item))
            except BaseException as error:  # carried over to the loop
                outcome = (False, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, outcome)

        def deliver(outcome: tuple[bool, Any]) -> None:
            self._slots.release()
            if not ended.done():
                ended.set_result(outcome)

        def expire() -> None:
            if not ended.done():
                ended.set_exception(_timed_out(timeout_s))

        self._threads.submit(work)
        timer = loop.call_later(timeout_s, expire)
        try:
            return await ended
        finally:
            timer.cancel()

    def _failed(self, index: int, error: Exception, latency_s: float) -> Failure:
        self._outlet.errors[index] = error
        if isinstance(error, _TimedOut):
            return Failure(FailureKind.TIMEOUT, str(error), latency_s=latency_s)
        failure = failure_of(error, time.time()) if self._by_status else None
        if failure is None:
            failure = Failure(FailureKind.EXCEPTION, _worded(error), latency_s=latency_s)
        return failure


class InOwnContext:
    """Awaits a coroutine in a copy of the context, as a task of its own would, without the task.

    A call that never waits then ends before the next begins: a task each would keep thousands of half-done calls
    alive, and the garbage collector busy with them (measured: twice the time a row).
    """

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self._coroutine = awaitable if isinstance(awaitable, Coroutine) else _finished(awaitable)
        self.has_waited = False

    def __await__(self) -> Generator[Any, Any, Any]:
        """Hands futures and what they bring to and fro; for one await."""
        run = contextvars.copy_context().run
        coroutine = self._coroutine
        try:
            waited_for = run(coroutine.send, None)
            while True:
                self.has_waited = True
                try:
                    brought = yield waited_for
                except BaseException as error:  # thrown into the coroutine, which decides
                    waited_for = run(coroutine.throw, error)
                else:
                    waited_for = run(coroutine.send, brought)
        except StopIteration as returned:
            return returned.value
        finally:
            coroutine.close()


class _TimedOut(TimeoutError):
    """Our own deadline, not one inside the function."""


def _timed_out(timeout_s: float) -> _TimedOut:
    return _TimedOut(f"the call did not return within {timeout_s:g} s; try a longer timeout_s")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _finished(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _async_of(function: Any) -> Callable[[Any], Awaitable[Any]] | None:
    """What starts the function on the loop, None for one that blocks."""
    if hasattr(function, "ainvoke") and hasattr(function, "invoke"):
        start: Callable[[Any], Awaitable[Any]] = function.ainvoke
        return start
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else getattr(type(inner), "__call__", None)  # noqa: B004 - what is asked is how
    return function if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called) else None


def _blocking_of(function: Any) -> Callable[[Any], Any]:
    blocking: Callable[[Any], Any] = function.invoke if hasattr(function, "invoke") else function
    return blocking


# --- exceptions --------------------------------------------------------------------------------------------


def failure_of(error: Exception, now: float) -> Failure | None:
    """What an exception with an HTTP status means, by the same table as replies; None where it carries none."""
    response = getattr(error, "response", None)
    status = _status_of(error) or _status_of(response)
    if status is None:
        return None
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    return failures.classify(status, _lower(headers), _body_of(error, response), now=now)


def _status_of(value: Any) -> int | None:
    for name in ("status_code", "status", "code"):
        status = getattr(value, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return status
    return None


def _lower(headers: Any) -> Mapping[str, str]:
    try:
        return {str(name).lower(): str(value) for name, value in headers.items()}
    except (AttributeError, TypeError, ValueError):
        return _HEADERS


def _body_of(error: Exception, response: Any) -> bytes:
    """The reply's body where the exception still has it; else one made of its words."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        return msgspec.json.encode({"error": body} if "error" not in body else body, enc_hook=str)
    try:
        content = getattr(response, "content", None)
    except Exception:  # a response that was never read says so by raising
        content = None
    if isinstance(content, bytes) and content:
        return content
    code = getattr(error, "code", None)
    fault = {"message": _worded(error), "code": code if isinstance(code, str) else None}
    return msgspec.json.encode({"error": fault})


def _worded(error: Exception) -> str:
    text = " ".join(str(error).split())
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return shortened(words, MESSAGE_CHARS)
