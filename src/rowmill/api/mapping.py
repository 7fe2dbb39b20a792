"""`rowmill.map` and `rowmill.amap`: rows in memory, asked about one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from rowmill.api.asking import begin
from rowmill.api.options import Prompt
from rowmill.api.result import named_statuses
from rowmill.api.running import chosen_on_change, observers

if TYPE_CHECKING:
    from typing import Unpack

    from rowmill.api.options import MapOptions
    from rowmill.runner import MapRules


class Frame(Protocol):
    """A frame that speaks Arrow: pandas, polars, an Arrow table, a DuckDB relation."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See Arrow's PyCapsule interface."""


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
def map(
    rows: Any,
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
) -> Any:
    """Asks a model about every row in memory; blocks until all have ended.

    A frame (pandas, polars, Arrow, a DuckDB relation) comes back as the same kind, an iterable of mappings as a
    list of dicts, of texts (column `text`) too: every row in order, with the answer and Rowmill's own columns
    (`_status`, ...).  Other arguments are as in `run`.  With `run_file` a second call goes on where the first ended.

    Rows that end badly are rows (`_status`).  Raises StoppedError where the run ended early, JobError when
    nothing can be sent.
    """
    from rowmill import runner

    named = {"prompt": prompt, "model": model, "answer": answer}
    asking = begin(rows, options.get("run_file"))
    try:
        job = asking.job({**named, **options})
        ended = runner.map_rows(job, asking.source(), _rules(options), observers(options))
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
async def amap(
    rows: Any,
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    answer: Any = None,
    **options: Unpack[MapOptions],
) -> Any:
    """As `map`, on the running loop.  Cancelling it drops what is in flight."""
    from rowmill import runner
    from rowmill.runner.loop import in_thread

    named = {"prompt": prompt, "model": model, "answer": answer}
    asking = await in_thread(begin, rows, options.get("run_file"))
    try:
        job = await in_thread(asking.job, {**named, **options})
        ended = await runner.amap_rows(job, asking.source(), _rules(options), observers(options))
        return await in_thread(asking.finish, ended)
    except BaseException as error:
        asking.abandon(error)
        raise


def _rules(options: Mapping[str, Any]) -> MapRules:
    from rowmill.runner import MapRules

    retry = options.get("retry") or ()
    return MapRules(chosen_on_change(options), sorted(named_statuses(retry, "retry")))
