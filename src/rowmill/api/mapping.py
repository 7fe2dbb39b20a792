"""`rowmill.map` and `rowmill.amap`: rows in memory, asked about one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from rowmill.api.asking import begin
from rowmill.api.options import Prompt
from rowmill.api.result import named_statuses
from rowmill.api.running import chosen_on_change, observers
from rowmill.errors import JobError

if TYPE_CHECKING:
    from typing import Unpack

    from rowmill.api.options import CallOptions, MapOptions
    from rowmill.runner import MapRules


class Frame(Protocol):
    """A frame that speaks Arrow: pandas, polars, an Arrow table, a DuckDB relation."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See Arrow's PyCapsule interface."""


T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Runnable(Protocol[T_contra, R_co]):
    """What a LangChain Runnable is here."""

    def invoke(self, input: T_contra) -> R_co:
        """One row, blocking."""

    async def ainvoke(self, input: T_contra) -> R_co:
        """One row, on the running loop."""


F = TypeVar("F", bound=Frame)
Rows = Iterable[Mapping[str, Any]] | Iterable[str]


@overload
def map(
    rows: F, *, prompt: Prompt, model: str | Sequence[str], answer: Any = None, **options: Unpack[MapOptions]
) -> F: ...
@overload
def map(
    rows: Rows, *, prompt: Prompt, model: str | Sequence[str], answer: Any = None, **options: Unpack[MapOptions]
) -> list[dict[str, Any]]: ...
@overload
def map(rows: Iterable[T], *, call: Callable[[T], Awaitable[R]], **options: Unpack[CallOptions]) -> list[R]: ...
@overload
def map(rows: Iterable[T], *, call: Callable[[T], R] | Runnable[T, R], **options: Unpack[CallOptions]) -> list[R]: ...
@overload
def map(rows: Frame, *, call: Any, **options: Unpack[CallOptions]) -> list[Any]: ...
def map(
    rows: Any,
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    call: Any = None,
    **options: Any,
) -> Any:
    """Asks a model about every row in memory, or calls a function for it; blocks until all have ended.

    With `prompt`: a frame (pandas, polars, Arrow, a DuckDB relation) comes back as the same kind, an iterable of
    mappings as a list of dicts, and so does one of texts (column `text`): every row in order, with the answer and
    Rowmill's own columns (`_status`, ...).  Other arguments are as in `run`.  With `run_file` a second call goes on
    where the first ended.

    With `call`: a blocking or async function, or a LangChain Runnable; what it returns comes back as a list in the
    rows' order.  A row whose attempts are used up has an exception; see `CallOptions` for that and the rest.

    Rows that end badly under a prompt are rows (`_status`).  Raises StoppedError where the run ended early,
    JobError when nothing can be sent.
    """
    if call is not None:
        from rowmill.api.calling import call_rows

        _no_prompt(prompt, model, answer)
        return call_rows(rows, call, options)
    from rowmill import runner

    named = {"prompt": prompt, "model": model, "answer": answer}
    asking = begin(rows, options.get("run_file"))
    try:
        job = asking.job({**named, **options})
        source = asking.source()
        ended = runner.map_rows(lambda: runner.prepared_map(job, source), _rules(options), observers(options))
        return asking.finish(ended)
    except BaseException as error:
        asking.abandon(error)
        raise


@overload
async def amap(
    rows: F, *, prompt: Prompt, model: str | Sequence[str], answer: Any = None, **options: Unpack[MapOptions]
) -> F: ...
@overload
async def amap(
    rows: Rows, *, prompt: Prompt, model: str | Sequence[str], answer: Any = None, **options: Unpack[MapOptions]
) -> list[dict[str, Any]]: ...
@overload
async def amap(rows: Iterable[T], *, call: Callable[[T], Awaitable[R]], **options: Unpack[CallOptions]) -> list[R]: ...
@overload
async def amap(
    rows: Iterable[T], *, call: Callable[[T], R] | Runnable[T, R], **options: Unpack[CallOptions]
) -> list[R]: ...
@overload
async def amap(rows: Frame, *, call: Any, **options: Unpack[CallOptions]) -> list[Any]: ...
async def amap(
    rows: Any,
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    call: Any = None,
    **options: Any,
) -> Any:
    """As `map`, on the running loop.  Cancelling it drops what is in flight."""
    if call is not None:
        from rowmill.api.calling import acall_rows

        _no_prompt(prompt, model, answer)
        return await acall_rows(rows, call, options)
    from rowmill import runner
    from rowmill.runner.loop import in_thread

    named = {"prompt": prompt, "model": model, "answer": answer}
    asking = await in_thread(begin, rows, options.get("run_file"))
    try:
        job = await in_thread(asking.job, {**named, **options})
        source = asking.source()
        ended = await runner.amap_rows(lambda: runner.prepared_map(job, source), _rules(options), observers(options))
        return await in_thread(asking.finish, ended)
    except BaseException as error:
        asking.abandon(error)
        raise


def _rules(options: Mapping[str, Any]) -> MapRules:
    from rowmill.runner import MapRules

    retry = options.get("retry") or ()
    return MapRules(chosen_on_change(options), sorted(named_statuses(retry, "retry")))


def _no_prompt(prompt: object, model: object, answer: object) -> None:
    given = [name for name, value in (("prompt", prompt), ("model", model), ("answer", answer)) if value is not None]
    if given:
        raise JobError(f"{', '.join(given)}: a function is called with the row itself; give either call or a prompt")
