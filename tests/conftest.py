from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.elsewhere import Bucket, ObjectStore


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
