"""What a session under a budget has sent and spent, to the request, where a kill leaves it: mapped memory.

Commits are 200 ms apart, and what is sent between two of them would be lost to a kill.  The mapped page belongs to the
system and outlives the process; only a machine that stops loses it, and then the last commit counts.  It must not know
prices or budgets.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import struct
from pathlib import Path
from typing import NamedTuple, Self

from rowmill.errors import OutputError

ENDING = "-spent"
_MAGIC = b"ROWMSPND"
_HEAD = struct.Struct("=8s16sqd")
_FIGURES = struct.Struct("=qqq")
_PER_USD = 10**12
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

TAKE_OVER = """
UPDATE sessions SET cost_usd = ?, unconfirmed_usd = ?, unknown_costs = ?
WHERE id = ? AND started = ? AND ended IS NULL
"""
AT_LEAST = """
UPDATE sessions SET cost_usd = max(cost_usd, ?), unconfirmed_usd = max(unconfirmed_usd, ?),
                    unknown_costs = max(unknown_costs, ?)
WHERE id = ? AND started = ? AND ended IS NULL
"""


class _Found(NamedTuple):
    """What an earlier session left; `is_whole`: the machine has run ever since, so nothing of it is missing."""

    session: int
    started: float
    known_usd: float
    unconfirmed_usd: float
    unknown_costs: int
    is_whole: bool


class SpendLedger:
    """RUN_FILE-spent, made for one session, taken away when its last commit is done."""

    def __init__(self, run_file: Path, session: int, started: float) -> None:
        self._path = ledger_path(run_file)
        content = _HEAD.pack(_MAGIC, _boot(), session, started) + _FIGURES.pack(0, 0, 0)
        try:
            self._path.unlink(missing_ok=True)
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            try:
                os.write(descriptor, content)
                self._map = mmap.mmap(descriptor, len(content))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputError(f"cannot keep account of the budget beside {run_file}: {error.strerror}") from None

    @classmethod
    def of_session(cls, run_file: Path, connection: sqlite3.Connection, session: int) -> Self:
        """The ledger of a session that has just begun."""
        (started,) = connection.execute("SELECT started FROM sessions WHERE id = ?", (session,)).fetchone()
        return cls(run_file, session, started)

    def write(self, known_pico: int, unconfirmed_pico: int, unknown_costs: int) -> None:
        """What is spent, what may be, in picodollars, and of how many requests the cost is not known."""
        _FIGURES.pack_into(self._map, _HEAD.size, known_pico, unconfirmed_pico, unknown_costs)

    def close(self, *, is_committed: bool) -> None:
        """Ends the account; its file stays where the last commit failed."""
        if is_committed:
            self._path.unlink(missing_ok=True)
        self._map.close()


def ledger_path(run_file: Path) -> Path:
    """Where the ledger of a run file lies."""
    return run_file.with_name(run_file.name + ENDING)


def take_over(run_file: Path, connection: sqlite3.Connection) -> None:
    """Brings what a killed session left into the run file; for whoever alone writes it."""
    path = ledger_path(run_file)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot read what the last run has spent, {path}: {error.strerror}") from None
    found = _read(content)
    if found is not None:
        sql = TAKE_OVER if found.is_whole else AT_LEAST
        figures = (found.known_usd, found.unconfirmed_usd, found.unknown_costs)
        connection.execute(sql, (*figures, found.session, found.started))
    path.unlink(missing_ok=True)


def _read(content: bytes) -> _Found | None:
    if len(content) != _HEAD.size + _FIGURES.size:
        return None
    magic, boot, session, started = _HEAD.unpack_from(content)
    known, unconfirmed, unknown = _FIGURES.unpack_from(content, _HEAD.size)
    if magic != _MAGIC or min(known, unconfirmed, unknown) < 0:
        return None
    return _Found(session, started, known / _PER_USD, unconfirmed / _PER_USD, unknown, any(boot) and boot == _boot())


def _boot() -> bytes:
    """Which start of the machine this is; all zeros where the system does not say."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="ascii").strip().replace("-", ""))[:16]
    except (OSError, ValueError):
        return bytes(16)
