"""Calls a function, or a LangChain Runnable, for every row: values in order, exceptions in their rows' places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rowmill.api.frames import read_frame
from rowmill.api.options import CallOptions, check_names, chosen_on_error, make_job
from rowmill.api.running import observers, raise_signal, rules_of
from rowmill.errors import JobError, StoppedError, StopReason
from rowmill.job.model import FUNCTION_PROMPT
from rowmill.runner.maps.calls import Called, Calls, Target
from rowmill.runner.session.loop import until_stopped

if TYPE_CHECKING:
    from rowmill.runner.maps.stored_calls import StoredCalls

NAME = "call"  # what `_endpoint` shows: names of functions change, and a lambda has none
OWN = frozenset({"on_error", "version", "on_change", "retry", "progress"})


class CalledRows:
    """One call of `map` with a function."""

    def __init__(self, rows: Any, call: Any, options: Mapping[str, Any]) -> None:
        """Raises JobError for what does not fit."""
        target = target_of(call, options)
        self._on_error = chosen_on_error(options) or "raise"
        self._calls: Calls | StoredCalls
        if options.get("run_file") is None:
            for name in ("version", "retry", "on_change"):
                if options.get(name) is not None:
                    raise JobError(f"{name}: is about what a run file holds; name one with run_file")
            self._calls = Calls([target], items_of(rows), observers=observers(options))
        else:
            from rowmill.runner.maps.stored_calls import StoredCalls

            self._calls = StoredCalls([target], items_of(rows), rules_of(options), observers=observers(options))

    def run(self) -> list[Any]:
        """Blocks until every row has ended."""
        return collected(self._calls.run(), self._on_error)

    async def arun(self) -> list[Any]:
        """The same on the running loop, to which the caller's clients are bound."""
        return collected(await until_stopped(self._calls.execute(), self._calls.stop), self._on_error)


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
    fixed = {"prompt": FUNCTION_PROMPT, "model": name, "format": "jsonl", "output": output, "params": params}
    return Target(name, call, make_job("-", {**given, **fixed}, {*given, *fixed}), by_status)


def collected(called: Called, on_error: str) -> list[Any]:
    """The values in order.  Raises the first row's exception, or StoppedError where rows are left."""
    raise_signal(called.reason)
    if called.error is not None:
        raise called.error
    if called.reason is not StopReason.FINISHED or any(True for _ in called.left()):
        raise left_out(called) from next(iter(called.errors.values()), None)
    if called.bad and on_error == "raise":
        raise called.raised(min(called.bad))
    for index in called.bad:
        called.values[index] = called.raised(index)
    return called.values


def left_out(called: Called) -> StoppedError:
    """Why rows had no turn, and how to go on."""
    kept = None if called.kept is None else str(called.kept)
    how = "nothing is kept without a run_file"
    if kept is not None:
        how = f"what was returned is kept in {kept}: the same call goes on"
    return StoppedError(f"{called.message}; {how}", called.reason.value, kept)


def items_of(rows: Any) -> Iterable[Any]:
    """The rows one by one; those of a frame as dicts."""
    frame = read_frame(rows)
    if frame is not None:
        from rowmill.io.sources.arrow import ArrowSource

        source = ArrowSource(frame.table)
        return (record for chunk in source.chunks() for record in chunk.records())
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
        raise JobError(f"rows: must be an iterable of rows, or a frame, not {type(rows).__name__}")
    return rows
