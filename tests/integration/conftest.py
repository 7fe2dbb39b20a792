from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose simulator answers with each row's token."""
    with Simulator(Behaviour()) as simulator:
        yield Workplace(tmp_path, simulator)
