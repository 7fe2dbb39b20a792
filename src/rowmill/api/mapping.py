"""`rowmill.map` and `rowmill.amap`: rows in memory, asked about one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from rowmill.api.options import Prompt
from rowmill.errors import JobError

if TYPE_CHECKING:
    from typing import Unpack

    from rowmill.api.asking import AskedRows
    from rowmill.api.calling import CalledRows
    from rowmill.api.options import CallOptions, MapOptions


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
    rows: F,
    *,
    prompt: Prompt,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
) -> F: ...
@overload
def map(
    rows: Rows,
    *,
    prompt: Prompt,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
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

    Rows that end badly under a prompt are rows (`_status`), unless `on_error` says otherwise; see `MapOptions`.
    Raises StoppedError where the run ended early, JobError when nothing can be sent.
    """
    return _begun(rows, call, {"prompt": prompt, "model": model, "answer": answer}, options).run()


@overload
async def amap(
    rows: F,
    *,
    prompt: Prompt,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
) -> F: ...
@overload
async def amap(
    rows: Rows,
    *,
    prompt: Prompt,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
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
    from rowmill.runner.session.loop import in_thread

    named = {"prompt": prompt, "model": model, "answer": answer}
    begun = await in_thread(_begun, rows, call, named, options)
    return await begun.arun()


def _begun(rows: Any, call: Any, named: Mapping[str, Any], options: Mapping[str, Any]) -> AskedRows | CalledRows:
    """One call of `map`, checked."""
    if call is None:
        from rowmill.api.asking import asked_rows

        return asked_rows(rows, {**named, **options})
    from rowmill.api.calling import CalledRows

    given = [name for name, value in named.items() if value is not None]
    if given:
        raise JobError(f"{', '.join(given)}: a function is called with the row itself; give either call or a prompt")
    return CalledRows(rows, call, options)
