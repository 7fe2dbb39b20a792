"""`rowmill.run` and `rowmill.arun`: a job from keyword arguments, run to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.api.options import Path, Prompt, make_job
from rowmill.api.result import Result, named_statuses
from rowmill.errors import JobError, StopReason, exit_code
from rowmill.job.option_table import check_choice

if TYPE_CHECKING:
    from typing import Unpack

    from rowmill.api.options import RunOptions
    from rowmill.core.pricing.quote import Quote
    from rowmill.job import Job
    from rowmill.ports import Observer
    from rowmill.runner import MapRules


def run(
    source: Path | Sequence[Path],
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    output: Path | None = None,
    answer: Any = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Asks a model about every row of a file, or goes on with it; blocks until it ends.

    `source` is a path, a list of paths, a glob, `-` or a job file (`.yaml`), over which the other arguments go; a
    batch file of the Batch API needs no prompt.  `answer` is shorthand (`"sentiment: positive|negative"`), a JSON
    Schema, a pydantic model or another class with fields.
    A second call with the same arguments sends only what is missing.

    Works in scripts, threads and where a loop is running.  Every end that leaves a run file is a Result, also an
    early one (see `Result.exit_code`); Ctrl-C saves what is in flight and raises KeyboardInterrupt.  Raises
    JobError when nothing can be sent.
    """
    from rowmill import runner

    named = {"prompt": prompt, "model": model, "output": output, "answer": answer}
    job = make_job(source, {**named, **options})
    ended = runner.run(job, **_how(job, options))
    raise_signal(ended.reason)
    return Result(ended)


async def arun(
    source: Path | Sequence[Path],
    *,
    prompt: Prompt | None = None,
    model: str | Sequence[str] | None = None,
    output: Path | None = None,
    answer: Any = None,
    **options: Unpack[RunOptions],
) -> Result:
    """As `run`, on the running loop.  Cancelling it drops what is in flight; what was answered is saved."""
    from rowmill import runner

    named = {"prompt": prompt, "model": model, "output": output, "answer": answer}
    job = make_job(source, {**named, **options})
    return Result(await runner.arun(job, **_how(job, options)))


def _how(job: Job, options: Mapping[str, Any]) -> dict[str, Any]:
    """What is no part of the job.  Raises JobError for a pilot that nobody looks at."""
    approve = options.get("approve")
    if job.pilot is not None and approve is None and job.budget_usd is None:
        raise JobError(
            "pilot: give approve, a function that is shown the quote and says whether to go on, or budget_usd"
        )
    return {
        "on_change": chosen_on_change(options),
        "fresh": options.get("fresh", False),
        "approve": approve or _go_on,
        "observers": observers(options),
    }


def _go_on(quote: Quote) -> bool:
    """The budget stands guard."""
    return True


def raise_signal(reason: StopReason) -> None:
    """A signal that ended a run goes on to the caller, now that everything is saved."""
    if reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    if reason is StopReason.TERMINATED:
        raise SystemExit(exit_code(reason))


def chosen_on_change(options: Mapping[str, Any]) -> str | None:
    """`keep`, `rerun` or None; raises JobError for anything else."""
    choice: str | None = options.get("on_change")
    check_choice("on_change", choice, "on_change")
    return choice


def observers(options: Mapping[str, Any]) -> list[Observer]:
    """Who watches: the log, or the progress display where it is asked for."""
    if options.get("progress"):
        from rowmill.observers.progress import Progress

        return [Progress(quiet=False)]
    from rowmill.observers.log import Log

    return [Log()]


def rules_of(options: Mapping[str, Any]) -> MapRules:
    """What is to become of rows that a run file holds already.  Raises JobError."""
    from rowmill.runner import MapRules

    return MapRules(chosen_on_change(options), sorted(named_statuses(options.get("retry") or (), "retry")))
