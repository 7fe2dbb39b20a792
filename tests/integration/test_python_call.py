"""`rowmill.map(rows, call=...)`: functions and Runnables through the engine."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

import rowmill

NUMBERS = list(range(50))
DOUBLED = [n * 2 for n in NUMBERS]


def double(n: int) -> int:
    return n * 2


async def adouble(n: int) -> int:
    await asyncio.sleep(0)
    return n * 2


class Doubler:
    async def __call__(self, n: int) -> int:
        return n * 2


class HttpError(Exception):
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = headers or {}


class Flaky:
    """Raises `error` on the first `times` calls of each row, then doubles; counts calls."""

    def __init__(self, error: Exception, times: int = 1, rows: tuple[int, ...] = (3, 7)) -> None:
        self.calls: Counter[int] = Counter()
        self._error, self._times, self._rows = error, times, rows

    def __call__(self, n: int) -> int:
        self.calls[n] += 1
        if n in self._rows and self.calls[n] <= self._times:
            raise self._error
        return n * 2


QUICK: dict[str, Any] = {"backoff_s": 0}

CALLS = [
    double,
    adouble,
    Doubler(),
    lambda n: adouble(n),
    functools.partial(lambda factor, n: n * factor, 2),
    functools.partial(adouble),
    RunnableLambda(double),
    RunnableLambda(double, afunc=adouble),
]


@pytest.mark.parametrize("call", CALLS, ids=["def", "async", "object", "lambda", "partial", "apartial", "run", "arun"])
def test_any_callable_gives_values_in_order(call: Any) -> None:
    assert rowmill.map(NUMBERS, call=call) == DOUBLED


def test_amap_calls_on_the_callers_loop() -> None:
    async def main() -> tuple[list[int], set[bool]]:
        here = asyncio.get_running_loop()
        seen = set()

        async def call(n: int) -> int:
            seen.add(asyncio.get_running_loop() is here)
            return n * 2

        return await rowmill.amap(NUMBERS, call=call), seen

    assert asyncio.run(main()) == (DOUBLED, {True})


def test_map_works_where_a_loop_is_running() -> None:
    async def main() -> list[int]:
        return rowmill.map(NUMBERS, call=adouble)

    assert asyncio.run(main()) == DOUBLED


def test_any_object_may_be_a_row_and_a_value() -> None:
    rows = [object() for _ in range(5)]
    assert rowmill.map(rows, call=lambda row: row) == rows


def test_rows_of_a_frame_are_dicts() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert rowmill.map(frame, call=lambda row: f"{row['b']}{row['a']}") == ["x1", "y2"]


def test_no_rows_are_no_values() -> None:
    assert rowmill.map([], call=double) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_no_more_calls_than_the_limit_are_under_way(is_async: bool) -> None:
    gate = threading.Barrier(4)
    under_way, peak = 0, 0
    lock = threading.Lock()

    def blocking(n: int) -> int:
        nonlocal under_way, peak
        with lock:
            under_way += 1
            peak = max(peak, under_way)
        gate.wait(10)  # returns only if four calls are under way at once
        with lock:
            under_way -= 1
        return n

    async def awaiting(n: int) -> int:
        nonlocal under_way, peak
        under_way += 1
        peak = max(peak, under_way)
        while under_way < 4 and n < 4:  # noqa: ASYNC110 - bounded by the test's own timeout
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way -= 1
        return n

    call: Any = awaiting if is_async else blocking
    assert rowmill.map(range(40), call=call, in_flight=4) == list(range(40))
    assert peak == 4


def test_each_call_has_a_context_of_its_own() -> None:
    seen: contextvars.ContextVar[int] = contextvars.ContextVar("seen", default=-1)

    async def call(n: int) -> int:
        before = seen.get()
        seen.set(n)
        return before

    assert set(rowmill.map(NUMBERS, call=call, in_flight=2)) == {-1}


def test_an_exception_is_tried_again() -> None:
    flaky = Flaky(ValueError("no"))
    assert rowmill.map(NUMBERS, call=flaky, **QUICK) == DOUBLED
    assert (flaky.calls[3], flaky.calls[4]) == (2, 1)


def test_attempts_that_are_used_up_raise_the_first_rows_exception_after_all_have_been_tried() -> None:
    flaky = Flaky(ValueError("no"), times=9)
    with pytest.raises(ValueError, match="no"):
        rowmill.map(NUMBERS, call=flaky, attempts=3, **QUICK)
    assert (flaky.calls[3], flaky.calls[7], len(flaky.calls)) == (3, 3, 50)


def test_exceptions_can_stand_in_their_rows_places() -> None:
    error = ValueError("no")
    found: list[Any] = rowmill.map(NUMBERS, call=Flaky(error, times=9), on_error="return", attempts=2, **QUICK)
    assert [n for n, value in enumerate(found) if value is error] == [3, 7]
    assert found[4] == 8


def test_a_function_that_always_raises_ends_soon_and_keeps_every_exception() -> None:
    def broken(n: int) -> int:
        raise KeyError(n)

    found: list[Any] = rowmill.map(NUMBERS, call=broken, on_error="return", attempts=2, **QUICK)
    assert [(type(value), value.args) for value in found] == [(KeyError, (n,)) for n in NUMBERS]


def test_stop_iteration_is_an_exception_like_any_other() -> None:
    found: list[Any] = rowmill.map(range(3), call=lambda n: next(iter(())), on_error="return", attempts=1)
    assert [type(value) for value in found] == [StopIteration] * 3


def test_only_exceptions_are_caught() -> None:
    def leaving(n: int) -> int:
        raise SystemExit(5)

    with pytest.raises(SystemExit, match="5"):
        rowmill.map(range(3), call=leaving, on_error="return")


def test_a_cancellation_from_inside_is_not_taken_for_a_row() -> None:
    async def call(n: int) -> int:
        if n == 2:
            raise asyncio.CancelledError
        return n

    async def main() -> None:
        await rowmill.amap(range(4), call=call, on_error="return")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


@pytest.mark.parametrize(("status", "calls"), [(500, 2), (400, 1), (429, 2)])
def test_an_exception_with_a_status_counts_as_that_reply_would(status: int, calls: int) -> None:
    flaky = Flaky(HttpError(status, {"Retry-After": "0.01"}), times=1)
    found = rowmill.map(NUMBERS, call=flaky, on_error="return", attempts=1 if status == 429 else 2, **QUICK)
    assert flaky.calls[3] == calls
    assert (found[3] == 6) is (status != 400)


def test_credentials_that_are_refused_stop_the_run() -> None:
    with pytest.raises(rowmill.StoppedError) as caught:
        rowmill.map(NUMBERS, call=Flaky(HttpError(401), times=9), in_flight=1, **QUICK)
    assert caught.value.reason == "credentials"
    assert isinstance(caught.value.__cause__, HttpError)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_takes_too_long_is_a_timeout(is_async: bool) -> None:
    never = threading.Event()

    def blocking(n: int) -> int:
        if n == 1:
            never.wait(20)
        return n

    async def awaiting(n: int) -> int:
        if n == 1:
            await asyncio.Event().wait()
        return n

    call: Any = awaiting if is_async else blocking
    found = rowmill.map(range(4), call=call, on_error="return", timeout_s=0.05, attempts=1)
    never.set()
    assert [found[0], found[2], found[3]] == [0, 2, 3]
    assert isinstance(found[1], TimeoutError)
    assert "0.05 s" in str(found[1])


def test_a_thread_that_has_timed_out_keeps_its_slot_until_it_ends() -> None:
    hangs, may_end = threading.Event(), threading.Event()
    under_way: set[int] = set()
    together: list[set[int]] = []

    def call(n: int) -> int:
        under_way.add(n)
        together.append(set(under_way))
        if n == 0 and not hangs.is_set():
            hangs.set()
            threading.Timer(0.2, may_end.set).start()
            may_end.wait(10)
        under_way.discard(n)
        return n

    assert rowmill.map(range(5), call=call, in_flight=1, timeout_s=0.05, attempts=3, **QUICK) == list(range(5))
    assert max(map(len, together)) == 1


def test_what_breaks_the_rows_off_is_raised() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        rowmill.map(rows(), call=double)


# --- with a run file ---------------------------------------------------------------------------------------


@dataclass
class Sized:
    text: str
    size: int


VALUES = [
    lambda n: {"n": n, "half": n / 2},
    lambda n: Sized(str(n), n),
    lambda n: AIMessage(str(n)),
    lambda n: (n, None),
]


@pytest.mark.parametrize("value", VALUES, ids=["dict", "dataclass", "message", "tuple"])
def test_a_resumed_call_gives_what_the_first_gave_and_calls_nothing(tmp_path: Path, value: Any) -> None:
    calls: list[int] = []

    def call(n: int) -> Any:
        calls.append(n)
        return value(n)

    first = rowmill.map(NUMBERS, call=call, run_file=tmp_path / "x.rowmill")
    again = rowmill.map(NUMBERS, call=call, run_file=tmp_path / "x.rowmill")
    assert first == again == [value(n) for n in NUMBERS]
    assert {type(one) for one in again} == {type(value(0))}
    assert sorted(calls) == NUMBERS


def test_items_come_out_of_the_run_file_as_they_went_in(tmp_path: Path) -> None:
    items = [Sized("a", 1), {"x": (1, 2)}, "text", None]
    assert rowmill.map(items, call=lambda item: item, run_file=tmp_path / "x.rowmill") == items


def test_rows_that_are_left_are_called_the_next_time(tmp_path: Path) -> None:
    flaky = Flaky(HttpError(401), times=1, rows=(20,))
    with pytest.raises(rowmill.StoppedError, match="goes on"):
        rowmill.map(NUMBERS, call=flaky, in_flight=1, run_file=tmp_path / "x.rowmill")
    assert rowmill.map(NUMBERS, call=flaky, run_file=tmp_path / "x.rowmill") == DOUBLED
    assert {n: number for n, number in flaky.calls.items() if number > 1} == {20: 2}


def test_failed_rows_are_remembered_and_called_again_when_told_to(tmp_path: Path) -> None:
    flaky = Flaky(ValueError("no"), times=2)
    options: dict[str, Any] = {"call": flaky, "run_file": tmp_path / "x.rowmill", "attempts": 1, **QUICK}
    with pytest.raises(ValueError, match="no"):
        rowmill.map(NUMBERS, **options)
    [bad] = [value for value in rowmill.map(NUMBERS, **options, on_error="return")[:4] if isinstance(value, Exception)]
    assert isinstance(bad, rowmill.RowError)
    assert (bad.row, bad.status, str(bad)) == (3, "failed", "ValueError: no")
    assert flaky.calls[3] == 1
    assert isinstance(rowmill.map(NUMBERS, **options, on_error="return", retry="failed")[3], ValueError)
    assert rowmill.map(NUMBERS, **options, retry=["failed"]) == DOUBLED


def test_another_version_of_the_code_is_a_changed_job(tmp_path: Path) -> None:
    run_file = tmp_path / "x.rowmill"
    rowmill.map(NUMBERS, call=double, version=1, run_file=run_file)
    with pytest.raises(rowmill.ChangedError, match="version: 1 -> 2"):
        rowmill.map(NUMBERS, call=lambda n: n * 3, version=2, run_file=run_file)
    found = rowmill.map(NUMBERS, call=lambda n: n * 3, version=2, run_file=run_file, on_change="rerun")
    assert found == [n * 3 for n in NUMBERS]


def test_a_value_that_cannot_be_stored_stops_after_the_first(tmp_path: Path) -> None:
    calls: list[int] = []

    def call(n: int) -> object:
        calls.append(n)
        return object()

    with pytest.raises(rowmill.RowmillError, match="row 0 cannot be stored"):
        rowmill.map(NUMBERS, call=call, in_flight=1, run_file=tmp_path / "x.rowmill")
    assert calls == [0]


def test_amap_resumes_too(tmp_path: Path) -> None:
    rowmill.map(NUMBERS[:20], call=double, run_file=tmp_path / "x.rowmill")
    assert asyncio.run(rowmill.amap(NUMBERS, call=adouble, run_file=tmp_path / "x.rowmill")) == DOUBLED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"call": 3}, "must be a function"),
        ({"in_flight": "auto"}, "has no adaptive limit"),
        ({"in_flight": 0}, "in_flight: must be"),
        ({"max_concurency": 3}, "did you mean in_flight"),
        ({"on_error": "ignore"}, "on_error: must be"),
        ({"version": 1}, "name one with run_file"),
        ({"prompt": "x"}, "either call or a prompt"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rowmill.JobError, match=message):
        rowmill.map(NUMBERS, **{"call": double, **options})


@pytest.mark.parametrize("rows", ["text", 3, {"a": 1}])
def test_what_holds_no_rows_is_refused(rows: Any) -> None:
    with pytest.raises(rowmill.JobError, match="rows: must be"):
        rowmill.map(rows, call=double)
