"""Goes on with what a run file holds, without the job file and the source that it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowmill.errors import JobError
from rowmill.events import Notice
from rowmill.ports import Observer
from rowmill.records import Result
from rowmill.runner.output.exporting import run_file_of, sendable_job
from rowmill.runner.session.loop import leave, signals
from rowmill.runner.session.start import Start
from rowmill.runner.session.taken_up import taken_up
from rowmill.store.reader import RunFileReader


def resume(
    output: str,
    *,
    run_file: str | None = None,
    confirm: Callable[[str], bool] | None = None,
    observers: Sequence[Observer] = (),
    interrupts: bool = True,
) -> Result:
    """Sends the pending rows that the run file holds, under its job; writes the output where that was all.

    `confirm` is asked where anything would be sent; None means yes.
    """
    with signals(leave, wanted=interrupts):
        path = run_file_of(output, run_file)
        with RunFileReader(path) as reader:
            job = sendable_job(reader, output)
        with taken_up(job, path) as (plan, endpoints):
            with RunFileReader(path, checked=False) as reader:
                stored, is_whole = reader.row_total(), reader.is_complete()
                pending = stored - sum(reader.totals().counts.values())
            models = ", ".join(endpoint.name for endpoint in endpoints)
            if pending and confirm is not None and not confirm(f"{pending:,} rows are pending; send them to {models}?"):
                raise JobError("nothing was sent: the rows stay pending")
            if not is_whole:
                _say_what_is_missing(stored, observers)
            start = Start(plan, endpoints, None, observers)
            return start.go(start.go_on, interrupts)


def _say_what_is_missing(stored: int, observers: Sequence[Observer]) -> None:
    words = (
        f"the input was not read to its end: only the {stored:,} rows that are in the run file are answered; "
        "the job's own command, run again, reads the rest"
    )
    for observer in observers:
        observer.notify(Notice(words))
