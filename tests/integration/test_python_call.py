"""`rowmill.map(rows, call=...)`: functions and Runnables through the engine."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from langchain_core.messages import AIMessage
from langchain_core.messages.base import TextAccessor
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

import rowmill
from rowmill import runner
from rowmill.runner.maps.calls import ROWS_PER_PIECE

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


class Response:
    """What `requests`, `httpx` and SDKs hang on their exceptions."""

    def __init__(self, status_code: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.status_code, self.content, self.headers = status_code, content, headers or {}


def sdk_error(status: int, **body: str) -> Exception:
    """As the SDK of a provider raises it: a status and the body's `error`."""
    error = HttpError(status)
    error.body = body  # type: ignore[attr-defined]
    return error


def client_error(status: int, content: bytes, headers: dict[str, str] | None = None) -> Exception:
    """As an HTTP client raises it: all is on the response."""
    error = Exception(f"{status} for url")
    error.response = Response(status, content, headers)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (sdk_error(400, code="context_length_exceeded", message="too long"), 1),
        (sdk_error(400, code="content_filter", message="no"), 1),
        (sdk_error(422, message="odd"), 1),
        (client_error(500, b"<html>"), 2),
        (client_error(400, b'{"error": {"code": "content_filter"}}'), 1),
        (client_error(400, b"{}", {"X-Should-Retry": "true"}), 2),
        (client_error(500, b"{}", {"x-should-retry": "false"}), 1),
    ],
    ids=repr,
)
def test_the_table_of_replies_holds_for_exceptions(error: Exception, calls: int) -> None:
    seen: Counter[int] = Counter()
    others_have_succeeded = asyncio.Event()

    async def call(n: int) -> int:
        seen[n] += 1
        if n == 25:  # of twenty at once, five have ended before it begins
            others_have_succeeded.set()
        if n == 3 and seen[n] <= 2:
            await others_have_succeeded.wait()
            raise error
        return n * 2

    found: list[Any] = rowmill.map(NUMBERS, call=call, on_error="return", attempts=2, **QUICK)
    assert (seen[3], found[3]) == (calls, error)
    assert found[:3] + found[4:] == DOUBLED[:3] + DOUBLED[4:]


@pytest.mark.parametrize(
    "error",
    [
        HttpError(429, {"Retry-After": "0.01"}),
        client_error(429, b'{"error": {"code": "slow_down"}}', {"retry-after-ms": "10"}),
        client_error(503, b"", {"RETRY-AFTER": "0.01"}),
    ],
    ids=repr,
)
def test_a_call_that_is_told_to_wait_uses_up_no_attempt(error: Exception) -> None:
    flaky = Flaky(error, rows=(3,))
    assert rowmill.map(NUMBERS[:5], call=flaky, attempts=1, in_flight=1) == DOUBLED[:5]
    assert flaky.calls[3] == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (sdk_error(429, code="insufficient_quota", message="no money"), "quota"),
        (client_error(402, b""), "quota"),
        (sdk_error(404, code="model_not_found", message="there is no model x"), "model_missing"),
    ],
    ids=repr,
)
def test_what_no_row_could_mend_stops_the_calls(error: Exception, reason: str) -> None:
    flaky = Flaky(error, times=99, rows=tuple(NUMBERS))
    with pytest.raises(rowmill.StoppedError) as caught:
        rowmill.map(NUMBERS, call=flaky, in_flight=2, on_error="return", **QUICK)
    assert caught.value.reason == reason
    assert caught.value.__cause__ is error
    assert len(flaky.calls) < 40


def test_too_many_failures_stop_the_calls_where_that_is_asked_for() -> None:
    flaky = Flaky(ValueError("no"), times=9, rows=tuple(range(0, 1_000, 2)))
    with pytest.raises(rowmill.StoppedError, match="max_failure_rate") as caught:
        rowmill.map(range(1_000), call=flaky, attempts=1, max_failure_rate=0.3, on_error="return", in_flight=1)
    assert caught.value.reason == "failure_rate"
    assert len(flaky.calls) < 100


class Alive:
    """A row that is counted for as long as it is held."""

    now = peak = 0

    def __init__(self) -> None:
        Alive.now += 1
        Alive.peak = max(Alive.peak, Alive.now)

    def __del__(self) -> None:
        Alive.now -= 1


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_are_not_held_beyond_their_turn(is_async: bool) -> None:
    async def awaiting(row: Alive) -> None:
        await asyncio.sleep(0)

    Alive.now = Alive.peak = 0
    call: Any = awaiting if is_async else lambda row: None
    assert rowmill.map((Alive() for _ in range(10_000)), call=call) == [None] * 10_000
    assert Alive.peak < 2_000
    assert Alive.now == 0


def test_credentials_that_are_refused_stop_the_run() -> None:
    with pytest.raises(rowmill.StoppedError) as caught:
        rowmill.map(NUMBERS, call=Flaky(HttpError(401), times=9, rows=tuple(NUMBERS)), in_flight=1, **QUICK)
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


def test_an_end_does_not_wait_for_rows_that_are_still_to_come() -> None:
    asked, late = threading.Event(), threading.Event()
    waited: list[bool] = []

    def rows() -> Iterator[int]:
        yield from range(4 * ROWS_PER_PIECE)
        asked.set()
        waited.append(late.wait(20))

    def leaving(n: int) -> int:
        if n == 4 * ROWS_PER_PIECE - 1 and asked.wait(20):
            raise SystemExit(5)
        return n

    with pytest.raises(SystemExit, match="5"):
        rowmill.map(rows(), call=leaving)
    assert not waited
    late.set()


# --- with a run file ---------------------------------------------------------------------------------------


@dataclass
class Sized:
    text: str
    size: int


class Shout(str):
    """A subclass of text."""


VALUES = [
    lambda n: Shout(n),
    lambda n: {"deep": [Shout(n)]},
    lambda n: {"n": n, "half": n / 2},
    lambda n: Sized(str(n), n),
    lambda n: AIMessage(str(n)),
    lambda n: (n, None),
]


@pytest.mark.parametrize("value", VALUES, ids=["text", "deep", "dict", "dataclass", "message", "tuple"])
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
    refusing = Flaky(HttpError(401), times=99, rows=tuple(n for n in NUMBERS if n >= 20))
    with pytest.raises(rowmill.StoppedError, match="goes on"):
        rowmill.map(NUMBERS, call=refusing, in_flight=1, run_file=tmp_path / "x.rowmill")
    flaky = Flaky(HttpError(401), times=0)
    assert rowmill.map(NUMBERS, call=flaky, run_file=tmp_path / "x.rowmill") == DOUBLED
    assert sorted(flaky.calls) == [n for n in NUMBERS if n >= 20]


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


def test_a_later_value_that_would_come_back_as_another_stops_the_run_and_the_others_are_kept(tmp_path: Path) -> None:
    calls: list[int] = []

    def call(n: int) -> Any:
        calls.append(n)
        return {"n": defaultdict(int) if n == 30 and len(calls) < 40 else n}

    options: dict[str, Any] = {"in_flight": 1, "run_file": tmp_path / "x.rowmill"}
    with pytest.raises(rowmill.RowmillError, match="row 30 cannot be stored"):
        rowmill.map(NUMBERS, call=call, **options)
    calls.extend([0] * 40)
    assert rowmill.map(NUMBERS, call=call, **options) == [{"n": n} for n in NUMBERS]
    assert calls[71:] == NUMBERS[30:]


def test_a_chain_can_be_called_and_resumed(tmp_path: Path) -> None:
    prompt = ChatPromptTemplate.from_template("say {n}")
    asked: list[str] = []

    def model(value: Any) -> AIMessage:
        asked.append(value.to_messages()[0].content)
        return AIMessage(asked[-1])

    chain = prompt | RunnableLambda(model) | StrOutputParser()
    rows = [{"n": n} for n in range(12)]
    first = rowmill.map(rows[:5], call=chain, run_file=tmp_path / "x.rowmill", in_flight=1)
    again = rowmill.map(rows, call=chain, run_file=tmp_path / "x.rowmill", in_flight=1)
    assert again == [f"say {n}" for n in range(12)] == asked
    assert [type(value) for value in again[:5]] == [type(value) for value in first] == [TextAccessor] * 5


def test_what_is_stored_can_be_exported_for_people_to_read(tmp_path: Path) -> None:
    rowmill.map([1, 2], call=Shout, run_file=tmp_path / "x.rowmill")
    runner.export(str(tmp_path / "x"), target=str(tmp_path / "x.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["answer"] for row in rows] == ["1", "2"]


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
