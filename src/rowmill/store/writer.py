"""The one thread that writes the run file: group commits, fsynced, 200 ms or half of what may wait for one apart.

It must not know what the records mean.  Everything before a commit's end can be lost to a kill, nothing after.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rowmill.errors import LockedError, RowmillError
from rowmill.records import Attempt, Outcome
from rowmill.store import connection as connections
from rowmill.store.inserts import UNSTORABLE, Row, insert_attempts, insert_outcomes, storable
from rowmill.store.spend_ledger import SpendLedger, take_over
from rowmill.store.table_rows import Redact, TableRows

COMMIT_INTERVAL_S = 0.2
FEWEST_UNCOMMITTED = 1000
LOCK_PATIENCE_S = 60.0

UPDATE_SESSION = """
UPDATE sessions SET updated = ?, peak_in_flight = ?, requests = ?, input_tokens = ?, output_tokens = ?,
                    cost_usd = ?, unknown_costs = ?, unconfirmed_usd = ?, latencies = ?, snapshot = ?
WHERE id = ?
"""

Task = Callable[[sqlite3.Connection], Any]


def most_uncommitted(peak_in_flight: int) -> int:
    """How many replies may wait for a commit before workers do: with thousands in flight they come in waves as large.

    Invariant: `peak_in_flight` is committed, so the next session knows how much a kill may have lost.
    """
    return max(FEWEST_UNCOMMITTED, peak_in_flight)


class Writer:
    """Queues records on the loop, writes them in its own thread; implements `ports.Store`.

    `redact` takes secrets out of contents (None: there are none).  `snapshot` gives what `status` shows; it and
    `notify`, which gets words for the user, are called in the writer's thread.
    """

    def __init__(self, path: Path, redact: Redact | None = None) -> None:
        self.path = path
        self._attempts: deque[Attempt] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._tasks: deque[tuple[Task, Future[Any]]] = deque()
        self._swap = threading.Lock()
        self._something = threading.Event()
        self._urgent = threading.Event()
        self._closing = False
        self._replies = 0
        self._most_uncommitted = FEWEST_UNCOMMITTED
        self._error: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._connection = connections.writer(path)
        self._ledger: SpendLedger | None = None
        with connections.translated(path):
            take_over(path, self._connection)
        self._rows = TableRows(self._connection, redact)
        self._is_output_current = True
        self._locked_since_s: float | None = None
        self.notify: Callable[[str], None] = lambda words: None
        self.session_id: int | None = None
        self.snapshot: Callable[[], Mapping[str, Any]] | None = None
        self._thread = threading.Thread(target=self._run, name="rowmill-store", daemon=True)
        self._thread.start()

    def begin(self, loop: asyncio.AbstractEventLoop, versions: Mapping[str, int]) -> None:
        """Opens a session on the engine's loop; `versions` maps endpoints to rows of the table versions."""
        self._loop = loop
        self.use_versions(versions)
        self.session_id = self.do(_new_session)

    def use_versions(self, versions: Mapping[str, int]) -> None:
        """What comes from now on was asked under these versions, by endpoint."""
        self._rows.versions = versions
        self._rows.version = next(iter(versions.values()), 0)

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of the job under which each endpoint is asked."""
        return self._rows.versions

    @property
    def version(self) -> int:
        """What rows stand under that no endpoint answered."""
        return self._rows.version

    def keep_account(self) -> Callable[[int, int, int], None]:
        """What is to be told of the session's money from now on; see `SpendLedger.write`."""
        session = self.session_id
        assert session is not None
        self._ledger = self.do(lambda connection: SpendLedger.of_session(self.path, connection, session))
        return self._ledger.write

    def save_attempt(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)
        self._count()

    def save_outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if not self._something.is_set():
            self._something.set()

    def full(self) -> bool:
        return self._error is not None or self._replies >= self._most_uncommitted

    async def room(self) -> None:
        while self.full():
            if self._error is not None:
                raise self._error
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self.hurry()
            await waiter

    def submit(self, task: Task) -> Future[Any]:
        """Has `task(connection)` run within the next commit; the future resolves after the commit.

        What the task raises ends the commit, and the run: see `do`.
        """
        future: Future[Any] = Future()
        with self._swap:
            self._tasks.append((task, future))
        self._something.set()
        return future

    def do(self, task: Task) -> Any:
        """Runs a task and waits for its commit; not for the engine's loop.

        Where the task raises a RowmillError, its changes are undone, the commit goes on and the error is raised here.
        """
        future = self.submit(lambda connection: _attempted(task, connection))
        self.hurry()
        return future.result()

    def hurry(self) -> None:
        """Has the next commit begin at once."""
        if not self._urgent.is_set():
            self._urgent.set()
        if not self._something.is_set():
            self._something.set()

    def close(self, reason: str | None) -> None:
        """Commits all that is queued, ends the session and the thread; raises what kept it from committing."""
        if self._thread.is_alive():
            if reason is not None and self.session_id is not None and self._error is None:
                session = self.session_id
                self.submit(
                    lambda c: c.execute(
                        "UPDATE sessions SET ended = ?, reason = ? WHERE id = ?",
                        (time.time(), reason, session),
                    )
                )
            self._closing = True
            self._urgent.set()
            self._something.set()
            self._thread.join()
        self._connection.close()
        if self._ledger is not None:
            self._ledger.close(is_committed=self._error is None)
            self._ledger = None
        if self._error is not None:
            raise self._error

    def _count(self) -> None:
        self._replies += 1
        if self._replies == self._most_uncommitted // 2:
            self._urgent.set()
        if not self._something.is_set():
            self._something.set()

    def _run(self) -> None:
        while True:
            self._something.wait()
            if not self._closing:
                self._urgent.wait(COMMIT_INTERVAL_S)
            self._something.clear()
            self._urgent.clear()
            last = self._closing
            if self._error is None or last:
                self._commit()
            if self._error is not None:
                self._fail_tasks()
            if last and (self._error is not None or not (self._attempts or self._outcomes or self._tasks)):
                return

    def _commit(self) -> None:
        """Replies first and by themselves: nothing that is asked of the run file holds them up."""
        # Invariant: an outcome never gets ahead of its attempt, so outcomes are taken off first.
        outcomes = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        attempts = [self._attempts.popleft() for _ in range(len(self._attempts))]
        self._error = None
        if attempts or outcomes:
            committed = self._in_transaction(lambda: self._store(attempts, outcomes))
            if not committed:
                self._outcomes.extendleft(reversed(outcomes))
                self._attempts.extendleft(reversed(attempts))
            self._tell_loop(len(attempts) if committed else 0)
            if not committed:
                return
        self._do_tasks()

    def _do_tasks(self) -> None:
        with self._swap:
            tasks, self._tasks = self._tasks, deque()
        if not tasks:
            return
        done: list[tuple[Future[Any], Any]] = []
        if self._in_transaction(lambda: self._write(tasks, done)):
            for future, result in done:
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        elif self._error is None:  # locked: they go on waiting
            with self._swap:
                self._tasks.extendleft(reversed(tasks))
        else:
            for _, future in tasks:
                future.set_exception(self._error)

    def _in_transaction(self, work: Callable[[], None]) -> bool:
        """Whether the work was committed; where it was not, nothing of it was done and `_error` says why.

        While another program has the run file locked there is no error: it is tried again.
        """
        # A dictionary, lanes and an outdated output that are not committed are forgotten.
        learned, is_output_current = self._rows.learned(), self._is_output_current
        try:
            with connections.translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
                work()
                self._connection.execute("COMMIT")
        except LockedError as error:
            self._wait_or_fail(error)
        except Exception as error:  # a full disk, damage or a bug: the run must hear of it and stop
            self._error = error
        else:
            self._locked_since_s = None
            return True
        if self._connection.in_transaction:
            self._connection.rollback()
        self._rows.forget(learned)
        self._is_output_current = is_output_current
        return False

    def _wait_or_fail(self, error: LockedError) -> None:
        """Says once that the run file is locked; gives up only where the run is to end and the lock stays."""
        now = time.monotonic()
        if self._locked_since_s is None:
            self._locked_since_s = now
            self.notify(f"{self.path} is locked by another program: replies are held until it is free")
        if self._closing and now - self._locked_since_s >= LOCK_PATIENCE_S:
            self._error = error
        self._something.set()

    def _tell_loop(self, replies: int) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop was closed in between; nobody waits there
                self._loop.call_soon_threadsafe(self._committed, replies)

    def _store(self, attempts: Sequence[Attempt], outcomes: Sequence[Outcome]) -> None:
        """Stores replies and how rows ended.  What no column can hold is left out, and never takes others along."""
        are_first = [attempt.is_first for attempt in attempts]
        attempt_rows, outcome_rows = self._rows.of_attempts(attempts), self._rows.of_outcomes(outcomes)
        self._connection.execute("SAVEPOINT replies")
        try:
            self._insert(attempt_rows, are_first, outcome_rows)
        except UNSTORABLE:
            self._connection.execute("ROLLBACK TO replies")
            self._insert([*map(storable, attempt_rows)], are_first, [*map(storable, outcome_rows)])
        self._connection.execute("RELEASE replies")
        self._write_session()
        if outcomes:
            self.outdate_output(self._connection)

    def _insert(self, attempts: Sequence[Row], are_first: Sequence[bool], outcomes: Sequence[Row]) -> None:
        if attempts:
            insert_attempts(self._connection, attempts, are_first)
        if outcomes:
            insert_outcomes(self._connection, outcomes)

    def _write(self, tasks: deque[tuple[Task, Future[Any]]], done: list[tuple[Future[Any], Any]]) -> None:
        for task, future in tasks:
            done.append((future, task(self._connection)))
        self._write_session()

    def outdate_output(self, connection: sqlite3.Connection) -> None:
        """The output no longer shows what is stored; part of every task that changes rows or input."""
        if self._is_output_current:
            connection.execute("DELETE FROM meta WHERE name = 'written'")
            self._is_output_current = False

    def _write_session(self) -> None:
        if self.snapshot is None or self.session_id is None:
            return
        shown = self.snapshot()
        self._most_uncommitted = most_uncommitted(shown["peak_in_flight"])
        values = (
            time.time(),
            shown["peak_in_flight"],
            shown["requests"],
            shown["input_tokens"],
            shown["output_tokens"],
            shown.get("cost_usd", 0.0),
            shown.get("unknown_costs", 0),
            shown.get("unconfirmed_usd", 0.0),
            json.dumps(shown["latencies"]),
            json.dumps(shown["snapshot"]),
        )
        self._connection.execute(UPDATE_SESSION, (*values, self.session_id))

    def _fail_tasks(self) -> None:
        with self._swap:
            for _, future in self._tasks:
                future.set_exception(self._error or RowmillError("the run file has been closed"))
            self._tasks.clear()

    def _committed(self, replies: int) -> None:
        self._replies -= replies
        if self._replies >= self._most_uncommitted // 2:  # they came while this commit was written
            self.hurry()
        if not self.full() or self._error is not None:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


def _attempted(task: Task, connection: sqlite3.Connection) -> Any:
    """A task's result, or the Rowmill error that it raised, its changes undone; SQLite's errors end the commit."""
    connection.execute("SAVEPOINT task")
    try:
        return task(connection)
    except RowmillError as error:
        connection.execute("ROLLBACK TO task")
        return error
    finally:
        if connection.in_transaction:
            connection.execute("RELEASE task")


def _new_session(connection: sqlite3.Connection) -> int:
    now = time.time()
    cursor = connection.execute("INSERT INTO sessions (started, updated) VALUES (?, ?)", (now, now))
    return int(cursor.lastrowid or 0)
