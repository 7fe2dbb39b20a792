"""Python's cycle collector while an engine or a command runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rowmill.cli import main
from rowmill.core.measures.gc_threshold import FEWEST_NEW_OBJECTS, rare_collections


@pytest.fixture(autouse=True)
def _thresholds_put_back() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_cycles_are_collected_rarely_during_a_run_and_as_before_after_it() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == (FEWEST_NEW_OBJECTS, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_run_that_ends_last_leaves_the_threshold_of_the_user() -> None:
    gc.set_threshold(700, 10, 10)
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_command_line_leaves_the_threshold_as_it_was() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert gc.get_threshold() == (700, 10, 10)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 10, 10)
    with rare_collections():
        assert gc.get_threshold()[0] == 0
