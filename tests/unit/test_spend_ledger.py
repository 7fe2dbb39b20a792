"""What a killed session has sent and spent is taken over into the run file, to the request."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from rowmill.store import connection as connections
from rowmill.store import spend_ledger
from rowmill.store.reader import RunFileReader
from rowmill.store.spend_ledger import SpendLedger, ledger_path
from rowmill.store.totals import Totals
from rowmill.store.writer import Writer

USD = 10**12
COMMITTED = {
    "peak_in_flight": 1,
    "requests": 4,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": 0.1,
    "unconfirmed_usd": 0.4,
    "latencies": {},
    "snapshot": {},
}


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "out.rowmill"
    connections.create(path)
    return path


def begun(run_file: Path) -> tuple[Writer, Any]:
    """A session that has committed once."""
    writer = Writer(run_file)
    session = writer.do(lambda c: c.execute("INSERT INTO sessions (started, updated) VALUES (12.5, 12.5)").lastrowid)
    writer.session_id = session
    writer.snapshot = lambda: COMMITTED
    write = writer.keep_account()
    writer.do(lambda c: None)
    return writer, write


def totals(run_file: Path) -> Totals:
    with RunFileReader(run_file, checked=False) as reader:
        return reader.totals()


def killed(writer: Writer) -> None:
    """Ends as a kill does: nothing more is committed, and the ledger stays."""
    ledger = writer.__dict__.pop("_ledger")
    writer._ledger = None
    writer.snapshot = None
    writer.close(None)
    ledger.close(is_committed=False)


def test_a_session_that_ends_well_leaves_no_ledger(run_file: Path) -> None:
    writer, _ = begun(run_file)
    assert stat.S_IMODE(ledger_path(run_file).stat().st_mode) == 0o600
    writer.close("finished")
    assert not ledger_path(run_file).exists()
    assert totals(run_file).known_usd == 0.1


def test_what_a_killed_session_left_stands_in_place_of_its_last_commit(run_file: Path) -> None:
    writer, write = begun(run_file)
    write(USD // 4, USD // 2, 3)
    write(USD // 5, USD // 8, 2)
    killed(writer)
    Writer(run_file).close(None)
    found = totals(run_file)
    assert (found.known_usd, found.unconfirmed_usd, found.unknown_costs) == (0.2, 0.125, 2)
    assert not ledger_path(run_file).exists()


def test_after_the_machine_has_stopped_the_larger_of_both_counts(
    run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, write = begun(run_file)
    write(USD // 5, USD // 8, 2)
    killed(writer)
    monkeypatch.setattr(spend_ledger, "_boot", lambda: b"another start   ")
    Writer(run_file).close(None)
    found = totals(run_file)
    assert (found.known_usd, found.unconfirmed_usd, found.unknown_costs) == (0.2, 0.4, 2)


@pytest.mark.parametrize("content", [b"", b"\0" * 56, b"x" * 200])
def test_a_ledger_that_cannot_be_read_changes_nothing(run_file: Path, content: bytes) -> None:
    writer, _ = begun(run_file)
    killed(writer)
    ledger_path(run_file).write_bytes(content)
    Writer(run_file).close(None)
    assert totals(run_file).unconfirmed_usd == 0.4


def test_a_ledger_of_another_run_file_changes_nothing(run_file: Path) -> None:
    writer, _ = begun(run_file)
    killed(writer)
    ledger = SpendLedger(run_file, 1, 99.0)
    ledger.write(USD, USD, 1)
    ledger.close(is_committed=False)
    Writer(run_file).close(None)
    assert totals(run_file).known_usd == 0.1
