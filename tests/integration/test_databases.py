"""Runs out of databases and into them, by the command line, with connections that break."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.workplace import Workplace, until

if TYPE_CHECKING:
    from tests.postgresql import Server

NUMBERS = itertools.count()
READ = "SELECT n AS id, '[[row-' || n || ']] text' AS text FROM generate_series(0, {most}) AS n"


@pytest.fixture
def table(postgresql: Server) -> str:
    """The name of a table that is not there yet."""
    return f"labels_{next(NUMBERS)}"


def tokens_are_own(server: Server, table: str, rows: int) -> bool:
    counts = f"SELECT count(*), count(DISTINCT id), sum((answer = 'row-' || id)::int) FROM {table}"
    return server.rows(counts) == [(rows, rows, rows)]


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return process.returncode, err


def test_rows_of_postgresql_are_labelled_and_written_back_by_upsert_twice(
    workplace: Workplace, postgresql: Server, table: str
) -> None:
    asked = ["--query", READ.format(most=2_999), "-o", postgresql.url, "--table", table, "--mode", "upsert"]
    ended = workplace.run(*asked, "--id", "id", source=postgresql.url)
    assert ended.code == 0, ended.err
    assert tokens_are_own(postgresql, table, 3_000)
    run_file = f"postgres.{table}.rowmill"
    assert f"run file   {run_file}" in ended.err
    once = postgresql.rows(f"SELECT * FROM {table} ORDER BY id")
    exported = workplace.rowmill("export", run_file, "-o", postgresql.url, *asked[4:], "--id", "id")
    assert exported.err == f"3,000 rows written to table {table} of {postgresql.url}\n"
    assert postgresql.rows(f"SELECT * FROM {table} ORDER BY id") == once
    assert workplace.run(*asked, "--id", "id", source=postgresql.url).code == 0
    assert workplace.request_total() == 3_000


@pytest.mark.slow
def test_a_connection_cut_in_the_middle_of_reading_loses_nothing(
    workplace: Workplace, postgresql: Server, table: str
) -> None:
    postgresql.sql("CREATE TABLE stopper (at bigint)", "INSERT INTO stopper VALUES (5000)")
    # The order is another one each time; the query hangs at row 5,000 as long as the stopper says so.
    query = (
        "SELECT id, text, CASE WHEN n = (SELECT at FROM stopper) THEN pg_sleep(60) END IS NULL AS x FROM "
        "(SELECT id, text || repeat('.', 500) AS text, row_number() OVER (ORDER BY random()) AS n "
        f"FROM ({READ.format(most=5_999)}) AS a) AS b"
    )
    asked = ["--query", query, "-o", postgresql.url, "--table", table, "--mode", "upsert", "--id", "id"]
    process = workplace.start(*asked, source=postgresql.url)
    until(lambda: workplace.request_total() >= 1_000, process)
    assert postgresql.cut() >= 1
    code, err = finish(process)
    assert code == 4
    assert "broke off after" in err
    assert "run the job's first command again" in err
    assert postgresql.value(f"SELECT to_regclass('{table}')::text") is None
    postgresql.sql("DROP TABLE stopper", "CREATE TABLE stopper (at bigint)")
    ended = workplace.run(*asked, source=postgresql.url)
    postgresql.sql("DROP TABLE stopper")
    assert ended.code == 0, ended.err
    assert tokens_are_own(postgresql, table, 6_000)
    assert workplace.request_total() == 6_000


@pytest.mark.slow
def test_a_connection_cut_in_the_middle_of_writing_leaves_the_table_and_loses_nothing(
    workplace: Workplace, postgresql: Server, table: str
) -> None:
    postgresql.sql(f"CREATE TABLE {table} (id text, answer text)", f"INSERT INTO {table} VALUES ('9', 'old')")
    workplace.write_rows(200)
    asked = ["-o", postgresql.url, "--table", table, "--mode", "append"]
    with postgresql.locked(table):
        process = workplace.start(*asked)
        until(postgresql.waiting, process)
        assert postgresql.cut() >= 1
        code, err = finish(process)
    assert code == 4
    assert f"every row is answered, but table {table} of {postgresql.url} could not be written and is as it was" in err
    assert postgresql.rows(f"SELECT * FROM {table}") == [("9", "old")]
    assert workplace.run(*asked).code == 0
    assert postgresql.value(f"SELECT count(*) FROM {table}") == 201
    assert workplace.run(*asked).code == 0
    assert postgresql.value(f"SELECT count(*) FROM {table}") == 201
    assert workplace.request_total() == 200


def interrupt(process: subprocess.Popen[str], server: Server) -> str:
    """Ctrl-C while a statement waits; what the process said.  The server has nothing more to do for it."""
    process.send_signal(signal.SIGINT)
    code, err = finish(process)
    assert code == 130, err
    running = "application_name = 'rowmill' AND state = 'active' AND pid <> pg_backend_pid()"
    assert server.value(f"SELECT count(*) FROM pg_stat_activity WHERE {running}") == 0
    return err


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_the_first_rows(workplace: Workplace, postgresql: Server, table: str) -> None:
    postgresql.sql(f"CREATE TABLE {table} (text text)", f"INSERT INTO {table} VALUES ('hi')")
    with postgresql.locked(table):
        process = workplace.start("--table", table, source=postgresql.url)
        until(postgresql.waiting, process)
        interrupt(process, postgresql)
    assert workplace.request_total() == 0


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_the_next_rows(workplace: Workplace, postgresql: Server) -> None:
    # The second column fills the driver's batches, so that rows come before the query hangs.
    more = ", repeat('x', 2000) AS filling, CASE n WHEN 3500 THEN pg_sleep(600) END AS wait FROM"
    process = workplace.start("--query", READ.format(most=4_999).replace(" FROM", more), source=postgresql.url)
    until(lambda: workplace.request_total() == 3_000, process)
    process.send_signal(signal.SIGINT)
    code, err = finish(process)
    assert code == 130
    assert "rows       3,000 ok" in err
    postgresql.cut()


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_the_output(workplace: Workplace, postgresql: Server, table: str) -> None:
    workplace.write_rows(30)
    write = ["-o", postgresql.url, "--table", table, "--mode", "upsert", "--id", "id"]
    assert workplace.run(*write).code == 0
    workplace.write_rows(40)
    with postgresql.locked(table):
        process = workplace.start(*write)
        until(postgresql.waiting, process)
        interrupt(process, postgresql)
    assert workplace.run(*write).code == 0
    assert tokens_are_own(postgresql, table, 40)
    assert workplace.request_total() == 40


@pytest.mark.parametrize(
    ("source", "query"),
    [
        (
            "sqlite:///shop.db",
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) AS text FROM c",
        ),
        ("duckdb:///shop.duckdb", "SELECT count(*) AS text FROM range(1000000000000) WHERE range % 7 = 3"),
    ],
)
@pytest.mark.slow
def test_an_interrupt_ends_a_query_of_a_file(workplace: Workplace, source: str, query: str) -> None:
    sqlite3.connect(workplace.folder / "shop.db").execute("CREATE TABLE t (x)")
    duckdb.connect(str(workplace.folder / "shop.duckdb")).close()
    process = workplace.start("--query", query, source=source)
    spent = os.sysconf("SC_CLK_TCK")
    until(lambda: processor_ticks(process) > 3 * spent, process)  # a start takes half a second, so it is at the query
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


def processor_ticks(process: subprocess.Popen[str]) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_locked_file(workplace: Workplace) -> None:
    workplace.write_rows(10)
    file = workplace.folder / "shop.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id TEXT)")
        connection.execute("BEGIN EXCLUSIVE")
        process = workplace.start("-o", "sqlite:///shop.db", "--table", "t", "--mode", "upsert", "--id", "id")
        until(lambda: file in opened(process), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 130  # the lock is waited for for 30 s
    assert workplace.request_total() == 0


def opened(process: subprocess.Popen[str]) -> set[Path]:
    """The files that a process has open."""
    found = set()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(link.readlink())
    return found


def test_a_database_that_is_not_there_is_refused_before_anything_is_sent(workplace: Workplace) -> None:
    workplace.write_rows(2)
    nowhere = "postgresql://boss:s3cret@127.0.0.1:1/shop"
    ended = workplace.run("-o", nowhere, "--table", "t")
    assert ended.code == 2
    assert "table t of postgresql://boss@127.0.0.1:1/shop cannot be written: " in ended.err
    assert "Connection refused" in ended.err
    assert list(workplace.folder.glob("*rowmill*")) == []
    assert workplace.request_total() == 0


def test_a_table_of_others_is_refused_before_anything_is_sent(
    workplace: Workplace, postgresql: Server, table: str
) -> None:
    postgresql.sql(f"CREATE TABLE {table} (id bigint)")
    workplace.write_rows(2)
    ended = workplace.run("-o", postgresql.url, "--table", table)
    assert ended.code == 2
    assert "exists: it is not overwritten" in ended.err
    assert workplace.request_total() == 0


def test_a_password_is_in_no_file_and_no_message(workplace: Workplace, postgresql: Server, table: str) -> None:
    workplace.write_rows(20)
    password = postgresql.password_url.split(":")[2].split("@")[0]
    ended = workplace.run("-o", postgresql.password_url, "--table", table, "--json")
    assert ended.code == 0, ended.err
    assert ended.json()["output"] == postgresql.locked_url
    again = workplace.rowmill("retry", f"postgres.{table}.rowmill", "--status", "ok")
    assert again.code == 2
    assert "PGPASSWORD" in again.err
    named = workplace.rowmill("retry", f"postgres.{table}.rowmill", "--status", "ok", env={"PGPASSWORD": password})
    assert named.code == 0, named.err
    assert all(password not in one.out + one.err for one in (ended, again, named))
    assert all(password.encode() not in path.read_bytes() for path in workplace.folder.iterdir())


def test_a_password_may_come_from_a_variable(workplace: Workplace, postgresql: Server) -> None:
    url = postgresql.locked_url.replace("guest@", "guest:$SHOP_PASSWORD@")
    asked = ["--query", READ.format(most=3)]
    password = postgresql.password_url.split(":")[2].split("@")[0]
    ended = workplace.rowmill(*workplace.arguments(url, *asked), env={"SHOP_PASSWORD": password})
    assert ended.code == 0, ended.err
    assert len(workplace.output()) == 4


def test_a_job_file_names_databases_beside_it(workplace: Workplace) -> None:
    with sqlite3.connect(workplace.folder / "in.db") as connection:
        connection.execute("CREATE TABLE reviews (id INTEGER, text TEXT, raw BLOB)")
        connection.executemany(
            "INSERT INTO reviews VALUES (?, ?, ?)", [(n, f"[[row-{n}]]", b"\x00\xff") for n in (1, 2)]
        )
    job = {
        "source": "sqlite:///in.db",
        "query": "SELECT * FROM reviews",
        "prompt": "{{ text }}",
        "endpoints": [{"model": "sim", "url": workplace.simulator.url}],
        "output": "duckdb:///out.db",
        "table": "labels",
    }
    workplace.write("job.yaml", json.dumps(job))
    elsewhere = workplace.folder / "elsewhere"
    elsewhere.mkdir()
    ended = Workplace(elsewhere, workplace.simulator).rowmill("run", "../job.yaml")
    assert ended.code == 0, ended.err
    with duckdb.connect(str(workplace.folder / "out.db"), read_only=True) as connection:
        found = connection.execute("SELECT id, raw, answer, _status FROM labels ORDER BY id").fetchall()
    assert found == [(1, b"\x00\xff", "row-1", "ok"), (2, b"\x00\xff", "row-2", "ok")]
    assert (workplace.folder / "out.db.labels.rowmill").exists()


def test_rows_that_ended_badly_are_in_a_file_beside_the_run_file(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n1,[[row-1]]\n2,\n")
    ended = workplace.run("-o", "sqlite:///out.db", "--table", "labels", "--empty", "fail")
    assert ended.code == 3, ended.err
    [failed] = workplace.output("out.db.labels.failed.jsonl")
    assert (failed["id"], failed["_rowmill"]["status"]) == ("2", "failed")


def test_a_key_that_is_not_unique_is_refused_before_anything_is_sent(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n1,a\n2,b\n1,c\n")
    ended = workplace.run("-o", "sqlite:///out.db", "--table", "labels", "--mode", "upsert", "--id", "id")
    assert ended.code == 2
    assert "rows 0 and 2 with the same" in ended.err
    assert workplace.request_total() == 0


def test_a_run_of_a_file_is_exported_into_a_database(workplace: Workplace) -> None:
    workplace.write_rows(5)
    assert workplace.run().code == 0
    into = ["export", "out.jsonl", "-o", "duckdb:///out.db", "--table", "labels"]
    assert workplace.rowmill(*into).code == 0
    assert workplace.rowmill(*into, "--mode", "upsert", "--id", "id").code == 0
    with duckdb.connect(str(workplace.folder / "out.db"), read_only=True) as connection:
        assert connection.execute("SELECT count(*), min(answer) FROM labels").fetchall() == [(5, "row-0")]
