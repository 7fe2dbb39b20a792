"""Calls a function, or a LangChain Runnable, for every row: values in order, exceptions in their rows' places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.api.frames import read_frame
from rowmill.api.options import CallOptions, check_names, make_job
from rowmill.api.result import named_statuses
from rowmill.api.running import chosen_on_change, observers, raise_signal
from rowmill.errors import JobError, StoppedError, StopReason
from rowmill.records import GOOD
from rowmill.runner.calling import Called, Calls, Target, error_of
from rowmill.runner.loop import in_thread, run_in_thread, signals, until_stopped
from rowmill.runner.mapping import MapRules, amap_rows, map_rows

if TYPE_CHECKING:
    from rowmill.providers.callable import Outlet
    from rowmill.records import Result
    from rowmill.runner.mapping import Prepared

NAME = "call"  # what `_endpoint` shows: names of functions change, and a lambda has none
SIGNALS = {2: StopReason.INTERRUPTED, 15: StopReason.TERMINATED}
OWN = frozenset({"on_error", "version", "on_change", "retry", "progress"})


def target_of(call: Any, options: Mapping[str, Any], name: str = NAME, *, by_status: bool = True) -> Target:
    """The function and how it is called.  Raises JobError for options that are unknown or out of range."""
    if not callable(call) and not hasattr(call, "invoke"):
        raise JobError(f"call: must be a function or a Runnable, not {type(call).__name__}")
    check_names(options, CallOptions.__annotations__)
    if options.get("in_flight") == "auto":
        raise JobError("in_flight: must be a number for a function: it has no adaptive limit")
    run_file = options.get("run_file")
    output = str(run_file or NAME).removesuffix(".rowmill")
    params = None if options.get("version") is None else {"version": options["version"]}
    given = {key: value for key, value in options.items() if key not in OWN}
    fixed = {"prompt": "(a function)", "model": name, "format": "jsonl", "output": output, "params": params}
    return Target(name, call, make_job("-", {**given, **fixed}), by_status)


def call_rows(rows: Any, call: Any, options: Mapping[str, Any]) -> list[Any]:
    """Blocks until every row has ended."""
    target, on_error = target_of(call, options), _on_error(options)
    items = items_of(rows)
    if options.get("run_file") is None:
        calls = Calls([target], items, observers=observers(options))
        return collected(run_calls(calls), on_error)
    stored = StoredCalls(target, items, options)
    ended = map_rows(stored.prepare, stored.rules, observers(options))
    return stored.collected(ended, on_error)


async def acall_rows(rows: Any, call: Any, options: Mapping[str, Any]) -> list[Any]:
    """As `call_rows`, on the running loop, to which the caller's clients are bound."""
    target, on_error = target_of(call, options), _on_error(options)
    items = items_of(rows)
    if options.get("run_file") is None:
        calls = Calls([target], items, observers=observers(options))
        return collected(await until_stopped(calls.execute(), calls.stop), on_error)
    stored = StoredCalls(target, items, options)
    ended = await amap_rows(stored.prepare, stored.rules, observers(options))
    return await in_thread(stored.collected, ended, on_error)


def run_calls(calls: Calls) -> Called:
    """Executes on a loop of its own.  After Ctrl-C what is in flight is awaited, and KeyboardInterrupt raised."""

    async def execute() -> Called:
        return await calls.execute()

    with signals(lambda number: calls.stop(SIGNALS[number]), wanted=True):
        called = run_in_thread(execute)
    raise_signal(called.reason)
    return called


def collected(called: Called, on_error: str) -> list[Any]:
    """The values in order.  Raises the first row's exception, or StoppedError where rows are left."""
    errors = {index: error_of(outcome, called.errors) for index, outcome in called.bad.items()}
    left = called.rows - len(called.values) - len(errors)
    if called.error is not None:
        raise called.error
    if called.reason is not StopReason.FINISHED or left:
        text = f"{called.message}; nothing is kept without a run_file"
        raise StoppedError(text, called.reason.value, None) from next(iter(called.errors.values()), None)
    if errors and on_error == "raise":
        raise errors[min(errors)]
    values = called.values
    return [errors[index] if index in errors else values[index] for index in range(called.rows)]


def items_of(rows: Any) -> Iterable[Any]:
    """The rows one by one; those of a frame as dicts."""
    frame = read_frame(rows)
    if frame is not None:
        from rowmill.sources.arrow import ArrowSource

        source = ArrowSource(frame.table)
        return (record for chunk in source.chunks() for record in chunk.records())
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
        raise JobError(f"rows: must be an iterable of rows, or a frame, not {type(rows).__name__}")
    return rows


class StoredCalls:
    """One call of `map` with a run file."""

    def __init__(self, target: Target, items: Iterable[Any], options: Mapping[str, Any]) -> None:
        from rowmill.providers.callable import Outlet
        from rowmill.runner.stored_calls import body_of

        self._target = target
        self._items = items
        self._outlet: Outlet = Outlet(body_of, {})
        self._run_file = Path(options["run_file"])
        retry = named_statuses(options.get("retry") or (), "retry")
        self.rules = MapRules(chosen_on_change(options), sorted(retry))

    def prepare(self) -> Prepared:
        """What is run."""
        from rowmill.runner.stored_calls import ItemSource, prepared_calls

        return prepared_calls(self._target, ItemSource(self._items), self._outlet)

    def collected(self, ended: Result, on_error: str) -> list[Any]:
        """The values in order, fresh and stored ones alike from the run file."""
        raise_signal(ended.reason)
        errors = self._outlet.errors
        if self._outlet.fatal is not None:
            raise self._outlet.fatal
        if ended.reason is not StopReason.FINISHED:
            kept = str(self._run_file)
            text = f"{ended.message}; what was returned is kept in {kept}: the same call goes on"
            raise StoppedError(text, ended.reason.value, kept) from next(iter(errors.values()), None)
        return list(self._values(on_error))

    def _values(self, on_error: str) -> Iterator[Any]:
        from rowmill.runner.stored_calls import stored_values

        for value, outcome in stored_values(self._run_file):
            if outcome.status in GOOD:
                yield value
                continue
            error = error_of(outcome, self._outlet.errors)
            if on_error == "raise":
                raise error
            yield error


def _on_error(options: Mapping[str, Any]) -> str:
    choice = options.get("on_error", "raise")
    if choice not in ("raise", "return"):
        raise JobError(f"on_error: must be 'raise' or 'return', not {choice!r}")
    if options.get("run_file") is None:
        for name in ("version", "retry", "on_change"):
            if options.get(name) is not None:
                raise JobError(f"{name}: is about what a run file holds; name one with run_file")
    return str(choice)
