"""Metadata of a run file: the job, the input's columns, whether the input is stored whole."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import zstandard


def get(connection: sqlite3.Connection, name: str) -> str | None:
    """An entry, None where there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def put(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def columns(connection: sqlite3.Connection) -> list[str]:
    """The input's columns so far, in order of first appearance."""
    text = get(connection, "columns")
    return [] if text is None else [str(name) for name in json.loads(text)]


def put_columns(connection: sqlite3.Connection, names: Sequence[str]) -> None:
    put(connection, "columns", json.dumps(list(names), ensure_ascii=False))


def dictionary(connection: sqlite3.Connection) -> bytes | None:
    """What raw replies are compressed with, None before the first."""
    text = get(connection, "dictionary")
    return None if text is None else zstandard.decompress(bytes.fromhex(text))


def put_dictionary(connection: sqlite3.Connection, content: bytes) -> None:
    put(connection, "dictionary", zstandard.compress(content).hex())
