"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.postgresql import Server, running_server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """One PostgreSQL for the whole session; tests use tables of their own."""
    with running_server() as server:
        yield server
