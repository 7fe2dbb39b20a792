"""Owns how databases, tables and the targets of outputs are named; must not know drivers, nor show a password."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

Kind = Literal["postgresql", "sqlite", "duckdb"]
Mode = Literal["create", "append", "replace", "upsert"]

UPSERT_NEEDS = "--mode upsert and --id COLUMN go together: the column tells which row of the table is meant"
_KINDS: Mapping[str, Kind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
_LONGEST_NAME_BYTES = 63
_SECRET_PARAMETERS = ("password", "sslpassword")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')
_LIKE_DATABASES = re.compile(r"(?i)^(postgres(ql)?|sqlite|duckdb)\b[^/]*:/")


class DatabaseUrl(str):
    """A database's URL.  As text it holds no password; `full` is what the user gave.

    A password written `$NAME` or `${NAME}` refers to an environment variable and stays in the text.
    """

    full: str

    @property
    def kind(self) -> Kind:
        """Which database it leads to."""
        return _KINDS[self.partition(":")[0].lower()]

    @property
    def path(self) -> str:
        """The file of a SQLite or DuckDB database."""
        return self.partition("://")[2].partition("?")[0].removeprefix("/")

    @property
    def database(self) -> str:
        """The database's name at its server; the file's path."""
        if self.kind != "postgresql":
            return self.path
        parts = urlsplit(self)
        return unquote(parts.path.lstrip("/")) or parts.username or "postgres"

    def connection_url(self, environment: Mapping[str, str]) -> str:
        """The URL to connect with.  Raises KeyError with the variable's name where a password refers to none."""
        user, password, rest = _split(self.full)
        found = _REFERENCE.fullmatch(password or "")
        if found is None:
            return self.full
        return _joined(self.full, user, quote(environment[found[1] or found[2]], safe=""), rest)

    def redact(self, message: str, environment: Mapping[str, str]) -> str:
        """The message without the password, should a driver have put it there."""
        _, password, _ = _split(self.full)
        found = _REFERENCE.fullmatch(password or "")
        if found is not None:
            password = environment.get(found[1] or found[2])
        secrets = [password, *(value for name, value in _query_of(self.full) if name in _SECRET_PARAMETERS)]
        for secret in filter(None, secrets):
            for shown in (secret, unquote(secret)):
                message = message.replace(shown, "***")
        return message


def is_database(text: str) -> bool:
    """Whether a source or an output names a database."""
    return _LIKE_DATABASES.match(text) is not None


def database_url(text: str) -> DatabaseUrl:
    """The URL that the text is.  Raises ValueError with what is wrong, in words that do not repeat it."""
    scheme, found, rest = text.partition("://")
    kind = _KINDS.get(scheme.lower())
    if kind is None or not found:
        raise ValueError("must be a database like postgresql://host/name, sqlite:///file.db or duckdb:///file.db")
    if kind != "postgresql":
        path = rest.partition("?")[0]
        if not path.startswith("/"):
            raise ValueError(f"must have three slashes before the file, like {kind}:///file.db")
        if path in ("/", "/:memory:"):
            raise ValueError(f"must name a file, like {kind}:///file.db")
        if "?" in rest:
            raise ValueError(f"must be nothing but the file, like {kind}:///file.db")
    elif any(sign.isspace() for sign in text) or "#" in rest:
        raise ValueError("must be a URL like postgresql://user@host:5432/name (other signs as %XX)")
    made = DatabaseUrl(_without_password(text) if kind == "postgresql" else text)
    made.full = text
    return made


def in_folder(text: str, folder: str) -> str:
    """A SQLite or DuckDB URL whose relative file is taken from `folder`; any other text as it is."""
    scheme, found, rest = text.partition("://")
    relative = rest[1:]
    kind = _KINDS.get(scheme.lower())
    if not found or not folder or kind in (None, "postgresql") or not rest.startswith("/") or relative.startswith("/"):
        return text
    return f"{scheme}:///{folder.rstrip('/')}/{relative}"


def _split(url: str) -> tuple[str, str | None, str]:
    """User, password, and what follows the @, of a URL; the host list of PostgreSQL is not taken apart."""
    authority = re.split(r"[/?]", url.partition("://")[2], maxsplit=1)[0]
    credentials, at, _ = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    return user, password if colon else None, url.partition("://")[2][len(credentials) + len(at) :]


def _joined(url: str, user: str, password: str | None, rest: str) -> str:
    credentials = user if password is None else f"{user}:{password}"
    return f"{url.partition('://')[0]}://{credentials}{'@' if credentials else ''}{rest}"


def _query_of(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("?")[2], keep_blank_values=True)


def _without_password(url: str) -> str:
    user, password, rest = _split(url)
    if password is not None and not _REFERENCE.fullmatch(password):
        url = _joined(url, user, None, rest)
    query = _query_of(url)
    kept = [(name, value) for name, value in query if name.lower() not in _SECRET_PARAMETERS]
    if len(kept) == len(query):
        return url
    return url.partition("?")[0] + ("?" + urlencode(kept) if kept else "")


class Table(NamedTuple):
    """A table's name in its parts: `(table,)` or `(schema, table)`."""

    parts: tuple[str, ...]

    @property
    def quoted(self) -> str:
        """As SQL writes it."""
        return ".".join(map(quoted, self.parts))


def table(text: str) -> Table:
    """`reviews`, `shop.reviews` or `"odd.name"`, exactly as written.  Raises ValueError."""
    parts, rest = [], text.strip()
    while found := _PART.match(rest):
        parts.append(found[1].replace('""', '"') if found[1] else found[2].strip())
        rest = rest[found.end() :]
        if not rest.startswith(".") or rest == ".":
            break
        rest = rest[1:]
    if rest or not parts or len(parts) > 3 or not all(parts) or "\0" in text:
        raise ValueError('must be a table like reviews or shop.reviews; a name with odd signs stands in "quotes"')
    return Table(tuple(parts))


def quoted(name: str) -> str:
    """A column's or a table's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Columns, as SQL lists them."""
    return ", ".join(map(quoted, names))


@dataclass(frozen=True, slots=True)
class Target:
    """The table that an output goes to, and what becomes of rows that stand there; `id` is the key of an upsert."""

    url: DatabaseUrl
    table_name: str
    mode: Mode = "create"
    id: str | None = None

    @property
    def table(self) -> Table:
        """The table's name, taken apart."""
        return table(self.table_name)

    def __str__(self) -> str:
        return f"table {self.table_name} of {self.url}"

    def stem(self) -> str:
        """Where the run file and the file of failures go that belong to it, without their endings.

        Beside the file of a SQLite or DuckDB database; in the current folder for one at a server.
        """
        name = re.sub(r"[^\w.-]+", "_", self.table_name.replace('"', "")).strip(".") or "table"
        if self.url.kind != "postgresql":
            return f"{self.url.path}.{name}"
        database = re.sub(r"[^\w-]+", "_", self.url.database)
        return f"{database}.{name}"


def make_target(output: DatabaseUrl, table_name: str | None, mode: str | None, id: str | None) -> Target:
    """The target that an output and its options name.  Raises ValueError with what is wrong."""
    if table_name is None:
        raise ValueError("a database as the output needs --table, the table to write")
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(f"--mode must be one of {', '.join(get_args(Mode))}, not {mode}")
    if (mode == "upsert") != (id is not None):
        raise ValueError(UPSERT_NEEDS)
    table(table_name)
    return Target(output, table_name, cast("Mode", mode or "create"), id)


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """What a run has written into a table, so that it knows the table again.

    `settled` is false from before the commit until it is known to have happened; `before` is how many rows stood there.
    """

    url: str
    table_name: str
    mode: str
    names: tuple[str, ...]
    rows: int
    before: int = 0
    settled: bool = False

    def is_of(self, target: Target) -> bool:
        """Whether it is about this table."""
        return self.url == str(target.url) and target.table == table(self.table_name)


def name_faults(kind: Kind, names: Sequence[str]) -> list[str]:
    """One sentence for every column name that such a database would refuse or change."""
    faults = []
    for name in names:
        if not name or "\0" in name:
            faults.append(f"no column of a database can be called {name!r}")
        elif kind == "postgresql" and len(name.encode()) > _LONGEST_NAME_BYTES:
            faults.append(f"PostgreSQL would cut the name of column {name!r} to {_LONGEST_NAME_BYTES} bytes: rename it")
    if kind != "postgresql":
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                faults.append(f"columns {other!r} and {name!r} are one to the database: rename one of them")
    return faults


def bad_ids(name: str, missing: Sequence[int], twice: Sequence[tuple[int, int]]) -> str:
    """The sentence that refuses a key which does not tell every row; rows by index, as many as are worth naming."""
    faults = []
    if missing:
        faults.append(f"row{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} without a value")
    faults += [f"rows {one} and {other} with the same" for one, other in twice]
    return (
        f"--id {name}: {'; '.join(faults)}: the key of an upsert has to tell every row from every other; "
        "choose another column, or another --mode"
    )


def shown(output: str, table_name: str | None) -> str:
    """An output in words, without a password."""
    return f"table {table_name} of {database_url(output)}" if is_database(output) else output
