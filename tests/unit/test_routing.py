"""Which endpoint a row is meant for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rowmill.core.requests.expressions import compile_expression
from rowmill.core.requests.routing import Route, Router
from rowmill.errors import JobError


def when(text: str) -> Route:
    return Route(when=compile_expression(text, "endpoints[0].when")[0])


def assigned(router: Router, index: int, **values: object) -> int | None:
    return router.assigned_lane(index, values)


def test_the_first_rows_go_to_the_first_that_takes_some_and_the_next_to_the_next() -> None:
    router = Router([Route(take=20), Route(take=10), Route()])
    assert [assigned(router, index) for index in (0, 19, 20, 29, 30)] == [0, 0, 1, 1, None]


def test_a_row_goes_where_an_expression_holds_first() -> None:
    router = Router([when("lang == 'en'"), when("lang == 'de' or lang == 'en'"), Route()])
    assert [assigned(router, 0, lang=lang) for lang in ("en", "de", "fr")] == [0, 1, None]


def test_a_row_that_nobody_takes_is_told_why() -> None:
    with pytest.raises(JobError, match="no endpoint takes this row"):
        assigned(Router([Route(take=1), when("a == 1")]), 5, a=2)


def test_every_row_is_in_exactly_one_partition() -> None:
    router = Router([Route(take=5), when("a % 2"), Route(take=5), when("b > 3")])
    rows: list[tuple[int, int, Mapping[str, object] | None]] = [
        (n, n, None if n == 13 else {"a": n, "b": n % 7 if n != 17 else "x"}) for n in range(40)
    ]
    claims = [partition.claimed(rows) for partition in router.partitions().values()]
    assert sorted(at for claimed, _ in claims for at in claimed) == list(range(40))
    unassigned = {at: why for _, found in claims for at, why in found.items()}
    assert "no endpoint takes" in unassigned[14]
    assert "endpoints[0].when" not in unassigned[14]
    assert 13 not in unassigned


def test_a_row_on_which_an_expression_fails_is_in_the_first_partition_with_the_reason() -> None:
    router = Router([when("a > 3"), Route()])
    partitions = router.partitions()
    bad = [(0, 0, {"a": "text"})]
    claimed, unassigned = partitions[0].claimed(bad)
    assert claimed == [0]
    assert "endpoints[0].when" in unassigned[0]
    assert partitions[None].claimed(bad) == ([], {})


def test_a_partition_of_the_first_rows_does_not_look_at_later_ones() -> None:
    partitions = Router([Route(), Route(take=10), Route(take=10)]).partitions()
    assert partitions[2].may_hold(0, 11)
    assert not partitions[2].may_hold(0, 10)
    assert not partitions[2].may_hold(20, 1000)


def test_without_routes_all_share_everything() -> None:
    partitions = Router([Route(), Route()]).partitions()
    assert list(partitions) == [None]
    assert partitions[None].is_everything
