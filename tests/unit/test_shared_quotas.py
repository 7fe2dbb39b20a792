"""Which endpoints spend one quota, and that they then do so together."""

from __future__ import annotations

from typing import Any

import pytest
from tests.virtual import FakeClock, run_virtual

from rowmill.core.replies.steps import RowState
from rowmill.errors import JobError
from rowmill.job import Job
from rowmill.records import Message, Request, Row
from rowmill.runner.setup.endpoints import Endpoint, gates, resolve_endpoints


def endpoints(*settings: dict[str, Any]) -> list[Endpoint]:
    made = [{"model": f"m{n}", "url": "http://localhost:1/v1", **one} for n, one in enumerate(settings)]
    return resolve_endpoints(Job.model_validate({"source": "in.csv", "prompt": "{{ a }}", "endpoints": made}))


def share(*settings: dict[str, Any]) -> bool:
    first, second = endpoints(*settings)
    return first.quota == second.quota


def state() -> RowState:
    made = RowState(Row(0, {}))
    made.request = Request([Message("user", "x")], {})
    return made


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "sk-one-secret")
    monkeypatch.setenv("TWO", "sk-two-secret")


def test_one_key_at_one_host_is_one_quota() -> None:
    assert share({"key_env": "ONE"}, {"key_env": "ONE"})
    assert not share({"key_env": "ONE"}, {"key_env": "TWO"})
    assert not share({"key_env": "ONE"}, {"key_env": "ONE", "url": "http://localhost:2/v1"})


def test_a_name_makes_one_quota_of_two_hosts_and_two_of_one() -> None:
    assert share({"quota": "q"}, {"quota": "q", "url": "http://localhost:2/v1"})
    assert not share({"quota": "q"}, {"quota": "r"})


def test_limits_that_differ_are_of_two_quotas() -> None:
    assert not share({"rpm": 5}, {"rpm": 6})
    assert share({"rpm": 5}, {"rpm": 5})
    assert share({"rpm": 5}, {})


def test_other_limits_under_one_name_are_refused() -> None:
    with pytest.raises(JobError, match="quota `q`"):
        endpoints({"quota": "q", "rpm": 5}, {"quota": "q", "rpm": 6})


def test_what_one_endpoint_spends_of_a_quota_the_other_does_not_have() -> None:
    async def admitted() -> list[int]:
        ways = gates(endpoints({"rpm": 600}, {}, {"quota": "other", "rpm": 600}), FakeClock())
        return [sum(way.reserve_now(state()) for _ in range(100)) for way in ways]

    first, second, other = run_virtual(admitted)
    assert first > 0
    assert second == 0
    assert other == first
