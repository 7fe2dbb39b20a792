"""What tests of several folders share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.groups import Turns, chosen, service_of
from tests.postgresql import Server, running_server

if TYPE_CHECKING:
    from tests.elsewhere import Bucket, ObjectStore

TURNS = pytest.StashKey[Turns]()
settings.register_profile("full", max_examples=150, deadline=None)
settings.register_profile("few", max_examples=20, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    share = float(os.environ.get("ROWMILL_SLOW_SHARE", "1"))
    parser.addoption("--slow-share", type=float, default=share, help="which share of the slow tests takes part")
    seed = os.environ.get("ROWMILL_SLOW_SEED", "rowmill")
    parser.addoption("--slow-seed", default=seed, help="the slow tests that take part follow from it")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", None):
        settings.load_profile("few" if config.getoption("slow_share") < 1 else "full")
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[TURNS] = Turns(worker["testrunuid"])


def pytest_unconfigure(config: pytest.Config) -> None:
    if TURNS in config.stash:
        config.stash[TURNS].remove()


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        share, seed = session.config.getoption("slow_share"), session.config.getoption("slow_seed")
        terminal.write_line(f"{share:.0%} of the slow tests, chosen by the seed {seed!r} (--slow-share, --slow-seed)")


@pytest.hookimpl(tryfirst=True)  # before workers are given their groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    taken = chosen(slow, config.getoption("slow_share"), config.getoption("slow_seed"))
    left = [item for item in items if item.get_closest_marker("slow") and item.nodeid not in taken]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    for item in items:
        service = "alone" if item.get_closest_marker("alone") else service_of(item)
        if service is not None and config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(service))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    turns = item.config.stash.get(TURNS, None)
    alone = item.get_closest_marker("alone") is not None
    with turns.turn(alone=alone) if turns is not None else contextlib.nullcontext():
        return (yield)


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
