"""LangChain: `RunnableBatch` puts Rowmill's engine under a chain's `batch`.  It keeps LangChain's semantics.

Three things differ: a key that no config has is refused instead of being moved into `configurable`,
`max_concurrency: 0` is refused instead of hanging, and an exception is raised when all inputs have been tried.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from queue import SimpleQueue
from typing import Any, TypedDict, TypeVar

from rowmill.api.calling import target_of
from rowmill.api.running import rules_of
from rowmill.core.measures.gc_threshold import rare_collections
from rowmill.errors import JobError, StopReason
from rowmill.integrations.batch import Batch, Ended
from rowmill.job.faults import nearest
from rowmill.providers.callable import InOwnContext
from rowmill.records import Outcome
from rowmill.runner.maps.calls import Calls, Target
from rowmill.runner.maps.stored_calls import StoredCalls
from rowmill.runner.session.loop import until_stopped

try:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.runnables.config import CONFIG_KEYS, get_config_list
except ImportError as error:
    raise ImportError("RunnableBatch needs langchain-core: pip install 'rowmill[langchain]'") from error

Input = TypeVar("Input")
Output = TypeVar("Output")
Configs = RunnableConfig | Sequence[RunnableConfig] | None

UNBOUNDED_S = 30 * 86_400.0
MOST_IN_FLIGHT = 100_000
THREADS = 32  # at most, where no limit is given: what LangChain's own executor has


class BatchOptions(TypedDict, total=False):
    """What `RunnableBatch` adds to a batch; names and meanings as in `rowmill.map`, times in seconds.

    Without `attempts` each input is tried once and no exception is looked into.  `timeout_s` is for one input,
    `max_duration_s` for the whole batch: inputs that it leaves out end as TimeoutError.
    """

    attempts: int
    backoff_s: float
    max_backoff_s: float
    rpm: float
    timeout_s: float
    max_duration_s: float
    run_file: str | os.PathLike[str]
    version: str | int
    on_change: str
    retry: str | Sequence[str]


class RunnableBatch(Runnable[Input, Output]):
    """A chain, or several, whose batches run through the engine.

    Of several chains `route` names one for each input; without it whichever is free takes the next.
    `max_concurrency` bounds all or each of them; a config's own goes before it.  All inputs are tried before an
    exception is raised.
    """

    def __init__(
        self,
        chains: Runnable[Input, Output] | Mapping[str, Runnable[Input, Output]],
        *,
        route: Callable[[Input], str] | None = None,
        max_concurrency: int | Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        self._chains = dict(chains) if isinstance(chains, Mapping) else {"chain": chains}
        if not self._chains or not all(isinstance(chain, Runnable) for chain in self._chains.values()):
            raise JobError("chains: must be a Runnable, or a mapping of names to Runnables")
        self._route = route
        self._limits = self._checked_limits(max_concurrency)
        unknown = sorted(set(options).difference(BatchOptions.__annotations__))
        if unknown:
            meant = nearest(unknown[0], BatchOptions.__annotations__)
            raise JobError(f"{unknown[0]}: unknown option" + (f"; did you mean {meant}?" if meant else ""))
        self._options = options
        for name in self._chains:
            self._target(name, [], {}, blocking=False)  # refuses what is out of range now, not in the first batch

    def _checked_limits(self, given: int | Mapping[str, int] | None) -> dict[str, int | None]:
        if isinstance(given, Mapping):
            strange = sorted(set(given).difference(self._chains))
            if strange:
                raise JobError(f"max_concurrency: there is no chain {', '.join(strange)}")
        limits = {name: given.get(name) if isinstance(given, Mapping) else given for name in self._chains}
        for limit in limits.values():
            check_limit(limit)
        return limits

    # --- one input: the chain itself ---------------------------------------------------------------------

    def invoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """As the input's chain does."""
        check_config(config)
        return self._chain_of(input).invoke(input, config, **kwargs)

    async def ainvoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """As the input's chain does."""
        check_config(config)
        return await self._chain_of(input).ainvoke(input, config, **kwargs)

    def stream(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Output]:
        """As the input's chain does."""
        check_config(config)
        yield from self._chain_of(input).stream(input, config, **kwargs)

    async def astream(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Output]:
        """As the input's chain does."""
        check_config(config)
        async for part in self._chain_of(input).astream(input, config, **kwargs):
            yield part

    def _chain_of(self, input: Input) -> Runnable[Input, Output]:
        return self._chains[self._name_of(input)]

    def _name_of(self, input: Input) -> str:
        if self._route is None:
            return next(iter(self._chains))
        name = self._route(input)
        if name not in self._chains:
            raise JobError(f"route: named {name!r}; the chains are {', '.join(self._chains)}")
        return name

    # --- batches -------------------------------------------------------------------------------------------

    def batch(
        self,
        inputs: list[Input],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[Output]:
        """Outputs in the inputs' order; see `Runnable.batch`."""
        if not inputs:
            return []
        configs = configs_of(config, len(inputs))
        if len(inputs) == 1 and not self._options:
            return [self._one(inputs[0], configs[0], kwargs, return_exceptions)]
        batch = self._batch(inputs, configs, kwargs, blocking=True)
        batch.run()
        return batch.outputs(return_exceptions)

    async def abatch(
        self,
        inputs: list[Input],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[Output]:
        """Outputs in the inputs' order, on the running loop; see `Runnable.abatch`."""
        if not inputs:
            return []
        configs = configs_of(config, len(inputs))
        with rare_collections():
            if self._is_bare():
                return await self._gathered(inputs, configs, kwargs, return_exceptions)
            batch = self._batch(inputs, configs, kwargs, blocking=False)
            await until_stopped(batch.execute(), batch.stop)
        return batch.outputs(return_exceptions)

    def batch_as_completed(
        self,
        inputs: Sequence[Input],
        config: Configs = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> Iterator[tuple[int, Any]]:
        """Pairs of an input's index and its output as they come; see `Runnable.batch_as_completed`."""
        if not inputs:
            return
        configs = configs_of(config, len(inputs))
        if len(inputs) == 1 and not self._options:
            yield 0, self._one(inputs[0], configs[0], kwargs, return_exceptions)
            return
        ended: SimpleQueue[Ended] = SimpleQueue()
        batch = self._batch(inputs, configs, kwargs, blocking=True, notify=ended.put)
        running = threading.Thread(target=contextvars.copy_context().run, args=(batch.run_and_notify,))
        running.start()
        try:
            for _ in inputs:
                yield ended.get().shown(return_exceptions)
        finally:
            batch.stop(StopReason.INTERRUPTED)
            running.join()

    async def abatch_as_completed(
        self,
        inputs: Sequence[Input],
        config: Configs = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[tuple[int, Any]]:
        """As `batch_as_completed`, on the running loop; see `Runnable.abatch_as_completed`."""
        if not inputs:
            return
        configs = configs_of(config, len(inputs))
        ended: asyncio.Queue[Ended] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def notify(one: Ended) -> None:  # stored outputs are read in a thread
            loop.call_soon_threadsafe(ended.put_nowait, one)

        batch = self._batch(inputs, configs, kwargs, blocking=False, notify=notify)
        running = asyncio.ensure_future(batch.execute_and_notify())
        try:
            for _ in inputs:
                yield (await ended.get()).shown(return_exceptions)
        finally:
            batch.stop(StopReason.INTERRUPTED)
            if not running.done():
                batch.stop(StopReason.INTERRUPTED)
            await running

    def _is_bare(self) -> bool:
        """Whether nothing is asked for that an engine is needed for: no retry, no rate, no run file, one chain."""
        return not self._options and len(self._chains) == 1

    async def _gathered(
        self,
        inputs: Sequence[Input],
        configs: Sequence[RunnableConfig],
        kwargs: Mapping[str, Any],
        return_exceptions: bool,
    ) -> list[Any]:
        """So many at once as may be.  Invariant: all have been tried before the first input's exception is raised."""
        [(name, chain)] = self._chains.items()
        found: list[Any] = [None] * len(inputs)
        errors: dict[int, Exception] = {}
        indexes = iter(range(len(inputs)))

        async def work(index: int) -> None:
            try:
                found[index] = await chain.ainvoke(inputs[index], configs[index], **kwargs)
            except Exception as error:  # the chain may raise anything
                found[index] = errors[index] = error

        async def work_on() -> None:
            for index in indexes:
                call = InOwnContext(work(index))
                await call
                if not call.has_waited:
                    await asyncio.sleep(0)

        limit = configs[0].get("max_concurrency") or self._limits[name]
        if limit is None:
            await asyncio.gather(*map(work, indexes))
        else:
            await asyncio.gather(*(work_on() for _ in range(min(limit, len(inputs)))))
        if errors and not return_exceptions:
            raise errors[min(errors)]
        return found

    def _one(self, input: Input, config: RunnableConfig, kwargs: Mapping[str, Any], return_exceptions: bool) -> Any:
        """A single input needs no engine; so does LangChain."""
        try:
            return self._chain_of(input).invoke(input, config, **kwargs)
        except Exception as error:  # the chain may raise anything
            if return_exceptions:
                return error
            raise

    def _batch(
        self,
        inputs: Sequence[Input],
        configs: Sequence[RunnableConfig],
        kwargs: Mapping[str, Any],
        *,
        blocking: bool,
        notify: Callable[[Ended], None] | None = None,
    ) -> Batch:
        targets = [self._target(name, configs, kwargs, blocking) for name in self._chains]
        route: Callable[[int], int] | None = None
        if self._route is not None:
            indexes = {name: index for index, name in enumerate(self._chains)}
            route = [indexes[self._name_of(input)] for input in inputs].__getitem__

        def calls(ended: Callable[[Outcome], None] | None) -> Calls | StoredCalls:
            if self._options.get("run_file") is None:
                return Calls(targets, inputs, route=route, ended=ended)
            return StoredCalls(targets, inputs, rules_of(self._options), route=route, ended=ended)

        return Batch(calls, self._options.get("max_duration_s"), notify)

    def _target(
        self, name: str, configs: Sequence[RunnableConfig], kwargs: Mapping[str, Any], blocking: bool
    ) -> Target:
        own = configs[0].get("max_concurrency") if configs else None
        limit = own or self._limits[name]
        if limit is None:
            limit = min(THREADS, (os.cpu_count() or 1) + 4) if blocking else max(1, min(len(configs), MOST_IN_FLIGHT))
        options = {"attempts": 1, "timeout_s": UNBOUNDED_S, **self._options, "in_flight": limit}
        options.setdefault("row_timeout_s", UNBOUNDED_S)
        chain = self._chains[name]
        call = _Blocking(chain, configs, kwargs) if blocking else _Awaited(chain, configs, kwargs)
        return target_of(call, options, name, by_status="attempts" in self._options)


class _Blocking:
    """Invokes a chain with the input's own config."""

    takes_row = True

    def __init__(self, chain: Runnable[Any, Any], configs: Sequence[RunnableConfig], kwargs: Mapping[str, Any]) -> None:
        self._chain, self._configs, self._kwargs = chain, configs, kwargs

    def __call__(self, pair: tuple[int, Any]) -> Any:
        index, input = pair
        return self._chain.invoke(input, self._configs[index], **self._kwargs)


class _Awaited(_Blocking):
    invoke = _Blocking.__call__

    def ainvoke(self, pair: tuple[int, Any]) -> Awaitable[Any]:
        """The chain's own coroutine: one of ours around each would only cost."""
        index, input = pair
        return self._chain.ainvoke(input, self._configs[index], **self._kwargs)


# --- configs -------------------------------------------------------------------------------------------------


def configs_of(config: Configs, size: int) -> list[RunnableConfig]:
    """One config for each input, by LangChain's own rules; checked before."""
    for one in config if isinstance(config, Sequence) else [config]:
        check_config(one)
    return get_config_list(config, size)


def check_config(config: RunnableConfig | None) -> None:
    """Refuses keys that no config has, and a concurrency of nothing.  Raises ValueError."""
    if not isinstance(config, Mapping):
        return
    for key in config:
        if key not in CONFIG_KEYS:
            near = get_close_matches(key, CONFIG_KEYS, n=1, cutoff=0.6)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown config key {key!r}: {meant}Values of the chain's own go into `configurable`")
    check_limit(config.get("max_concurrency"))


def check_limit(limit: int | None) -> None:
    """Raises ValueError for a concurrency under which nothing would ever run."""
    if limit is not None and limit < 1:
        raise ValueError(f"max_concurrency must be at least 1, not {limit}; leave it out for no limit")
