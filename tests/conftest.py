"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.postgresql import Server, running_server

if TYPE_CHECKING:
    from tests.elsewhere import Bucket, ObjectStore


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """One PostgreSQL for the whole session; tests use tables of their own."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """An S3 server, to which this process's clients are pointed."""
    from tests.elsewhere import ObjectStore

    store = ObjectStore()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in store.environment.items():
            environment.setenv(name, value)
        yield store
    store.stop()


@pytest.fixture
def bucket(object_store: ObjectStore) -> Bucket:
    """An empty bucket."""
    return object_store.new_bucket()
