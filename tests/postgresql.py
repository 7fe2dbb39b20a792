"""A PostgreSQL of the tests' own: in a temporary folder, on a port of its own, gone with them."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rowmill.core.names.databases import database_url
from rowmill.io.drivers.postgresql import PostgresqlConnection

PASSWORD = "correct-horse-battery"


class Server:
    """`url` names a superuser who needs no password, `locked_url` one who does and whose password is missing."""

    def __init__(self, folder: Path, programs: Path, port: int, user: int | None) -> None:
        self._folder, self._programs, self._port, self._user = folder, programs, port, user
        self.url = f"postgresql://boss@127.0.0.1:{port}/postgres"
        self.locked_url = f"postgresql://guest@127.0.0.1:{port}/postgres"
        self.password_url = f"postgresql://guest:{PASSWORD}@127.0.0.1:{port}/postgres"

    def make(self) -> None:
        self._call("initdb", "--auth=trust", "--username=boss", "--encoding=UTF8", "--locale=C", "--no-sync", "data")
        rules = "host all guest all scram-sha-256\nhost all all all trust\nlocal all all trust\n"
        (self._folder / "data" / "pg_hba.conf").write_text(rules)
        self.start()
        self.sql(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'", "GRANT ALL ON SCHEMA public TO guest")

    def start(self) -> None:
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._call("pg_ctl", "-D", "data", "-o", options, "-l", "log", "-w", "-s", "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", "data", "-m", "immediate", "-s", "stop")

    def sql(self, *statements: str) -> None:
        with PostgresqlConnection(database_url(self.url)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        with PostgresqlConnection(database_url(self.url)) as connection:
            return connection.rows(query)

    def value(self, query: str) -> Any:
        [(value,)] = self.rows(query)
        return value

    def cut(self) -> int:
        """Ends all other connections of Rowmill; how many those were."""
        return int(
            self.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'rowmill' AND pid <> pg_backend_pid()"
            )
        )

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Keeps everybody else from the table."""
        with PostgresqlConnection(database_url(self.url)) as connection:
            connection.execute("SET application_name = 'holder'")
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield

    def waiting(self) -> bool:
        """Whether a connection waits for a lock."""
        return bool(self.value("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"))

    def _call(self, program: str, *arguments: str) -> None:
        who: dict[str, Any] = {} if self._user is None else {"user": self._user, "group": _group(self._user)}
        if who:
            who["extra_groups"] = []
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            text=True,
            **who,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def running_server() -> Iterator[Server]:
    """A server; the test is skipped where PostgreSQL is not installed, unless the environment says that it is."""
    programs = _programs()
    if programs is None:
        missing = pytest.fail if "ROWMILL_TESTS_NEED_POSTGRESQL" in os.environ else pytest.skip
        missing("PostgreSQL is not installed here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="rowmill-pg-"))
    user = _other_user()
    if user is not None:
        os.chown(folder, user, _group(user))
    server = Server(folder, programs, _free_port(), user)
    try:
        server.make()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[4]), reverse=True)
    found = next((folder for folder in folders if (Path(folder) / "initdb").exists()), None)
    if found is not None:
        return Path(found)
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path is not None else None


def _other_user() -> int | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise AssertionError("there is no user but root")


def _group(user: int) -> int:
    return pwd.getpwuid(user).pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
