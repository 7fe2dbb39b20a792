"""`RunnableBatch` beside `chain.batch`: the same calls, and what they do is compared."""

from __future__ import annotations

import asyncio
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

import rowmill
from rowmill.integrations.langchain import RunnableBatch

Made = Callable[[], Runnable[Any, Any]]


class Odd(Exception):
    def __eq__(self, other: object) -> bool:
        return type(other) is Odd and other.args == self.args

    __hash__ = Exception.__hash__


def work(n: int) -> int:
    if n % 10 == 7:
        raise Odd(n)
    return n * 2


async def awork(n: int) -> int:
    await asyncio.sleep(0)
    return work(n)


def tagged(n: int, config: RunnableConfig) -> Any:
    shown = config["metadata"].get("who"), sorted(config["tags"]), config["configurable"].get("x")
    return n, shown, config["recursion_limit"]


def times(n: int, by: int = 1) -> int:
    return n * by


def chain() -> Runnable[Any, Any]:
    prompt = ChatPromptTemplate.from_template("say {n}")
    return prompt | RunnableLambda(lambda value: AIMessage(value.to_messages()[0].content)) | StrOutputParser()


WAYS = ["batch", "abatch", "batch_as_completed", "abatch_as_completed"]


def do(way: str, runnable: Runnable[Any, Any], *arguments: Any, **more: Any) -> Any:
    """What a way of batching gives, or the exception that it raises; pairs in the order of their inputs."""

    async def awaited() -> Any:
        if way == "abatch":
            return await runnable.abatch(*arguments, **more)
        return sorted([pair async for pair in runnable.abatch_as_completed(*arguments, **more)], key=lambda p: p[0])

    try:
        if way == "batch":
            return runnable.batch(*arguments, **more)
        if way == "batch_as_completed":
            return sorted(runnable.batch_as_completed(*arguments, **more), key=lambda pair: pair[0])
        return asyncio.run(awaited())
    except Exception as error:
        return type(error), str(error)


CASES: dict[str, tuple[Made, tuple[Any, ...], dict[str, Any]]] = {
    "order": (lambda: RunnableLambda(work), ([3, 1, 2],), {}),
    "async": (lambda: RunnableLambda(work, afunc=awork), (list(range(7)),), {}),
    "empty": (lambda: RunnableLambda(work), ([],), {}),
    "empty with a list": (lambda: RunnableLambda(work), ([], []), {}),
    "one": (lambda: RunnableLambda(work), ([4],), {}),
    "one that raises": (lambda: RunnableLambda(work), ([7],), {}),
    "one exception returned": (lambda: RunnableLambda(work), ([7],), {"return_exceptions": True}),
    "raises": (lambda: RunnableLambda(work), ([7],), {}),
    "raises among others": (lambda: RunnableLambda(work), ([1, 7, 2],), {}),
    "exceptions returned": (lambda: RunnableLambda(work), ([1, 7, 2, 17],), {"return_exceptions": True}),
    "all raise": (lambda: RunnableLambda(work), ([7, 17, 27],), {"return_exceptions": True}),
    "a config": (
        lambda: RunnableLambda(tagged),
        ([1, 2], {"metadata": {"who": "a"}, "tags": ["t"], "recursion_limit": 9}),
        {},
    ),
    "a list of configs": (
        lambda: RunnableLambda(tagged),
        ([1, 2], [{"metadata": {"who": "a"}}, {"tags": ["b"], "configurable": {"x": 1}}]),
        {},
    ),
    "a tuple of configs": (lambda: RunnableLambda(tagged), ([1, 2], ({"tags": ["a"]}, {"tags": ["b"]})), {}),
    "too few configs": (lambda: RunnableLambda(tagged), ([1, 2], [{"tags": ["a"]}]), {}),
    "too many configs": (lambda: RunnableLambda(tagged), ([1], [{}, {}]), {}),
    "no config": (lambda: RunnableLambda(tagged), ([1, 2], None), {}),
    "bounded": (lambda: RunnableLambda(work), (list(range(7)), {"max_concurrency": 2}), {}),
    "kwargs": (lambda: RunnableLambda(times), ([1, 2, 3],), {"by": 5}),
    "a chain": (chain, ([{"n": 1}, {"n": 2}, {"n": 3}],), {}),
    "a chain without its input": (chain, ([{"n": 1}, {"m": 2}],), {"return_exceptions": False}),
    "messages": (lambda: FakeListChatModel(responses=["x"]) | StrOutputParser(), ([[HumanMessage("a")]] * 3,), {}),
    "bound": (lambda: RunnableLambda(tagged).with_config(tags=["z"]), ([1, 2], {"tags": ["t"]}), {}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_what_langchain_makes_of_it(case: str, way: str) -> None:
    made, arguments, more = CASES[case]
    ours = do(way, RunnableBatch(made()), *arguments, **more)
    assert repr(ours) == repr(do(way, made(), *arguments, **more))


class Watching(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.ids: list[uuid.UUID] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: uuid.UUID, **kwargs: Any) -> None:
        self.seen["start"] += 1
        self.ids.append(run_id)

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        self.seen["end"] += 1

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen["error"] += 1


@pytest.mark.parametrize("way", WAYS)
def test_callbacks_hear_of_the_same_things(way: str) -> None:
    heard = []
    for runnable in (RunnableLambda(work), RunnableBatch(RunnableLambda(work))):
        watching = Watching()
        do(way, runnable, [1, 7, 3], {"callbacks": [watching]}, return_exceptions=True)
        heard.append(watching.seen)
    assert heard[0] == heard[1] == {"start": 3, "end": 2, "error": 1}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_id_goes_to_the_first_input_alone_with_langchains_warning(way: str) -> None:
    watching, mine = Watching(), uuid.uuid4()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        do(way, RunnableBatch(RunnableLambda(work)), [1, 2, 3], {"run_id": mine, "callbacks": [watching]})
    assert watching.ids.count(mine) == 1
    assert [str(one.message) for one in caught if one.category is RuntimeWarning] != []


@pytest.mark.parametrize("way", WAYS)
def test_inside_a_runnable_the_callers_config_goes_on(way: str) -> None:
    def tags(runnable: Runnable[Any, Any]) -> Any:
        inner = [1, 2]
        if way.startswith("a"):

            async def outer(_: int) -> Any:
                if way == "abatch":
                    return await runnable.abatch(inner)
                return sorted([pair async for pair in runnable.abatch_as_completed(inner)])

            return asyncio.run(RunnableLambda(outer).ainvoke(0, {"tags": ["outer"], "metadata": {"who": "me"}}))
        outer_sync = RunnableLambda(lambda _: do(way, runnable, inner))
        return outer_sync.invoke(0, {"tags": ["outer"], "metadata": {"who": "me"}})

    theirs = tags(RunnableLambda(tagged))
    assert tags(RunnableBatch(RunnableLambda(tagged))) == theirs
    assert "me" in repr(theirs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_is_never_returned(way: str, error: type[BaseException]) -> None:
    def leave(n: int) -> int:
        if n == 1:
            raise error
        return n

    with pytest.raises(error):
        do(way, RunnableBatch(RunnableLambda(leave)), [0, 1, 2], return_exceptions=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_no_config_has_is_refused_with_a_suggestion(way: str) -> None:
    found = do(way, RunnableBatch(RunnableLambda(work)), [1, 2], {"max_concurency": 2})
    assert found[0] is ValueError
    assert "did you mean max_concurrency?" in found[1]


@pytest.mark.parametrize("way", WAYS)
def test_a_concurrency_of_nothing_is_refused(way: str) -> None:
    found = do(way, RunnableBatch(RunnableLambda(work)), [1, 2], {"max_concurrency": 0})
    assert found == (ValueError, "max_concurrency must be at least 1, not 0; leave it out for no limit")


@pytest.mark.parametrize("way", WAYS)
def test_no_more_than_the_concurrency_are_under_way(way: str) -> None:
    lock, under_way, peak = threading.Lock(), 0, 0

    def enter() -> None:
        nonlocal under_way, peak
        with lock:
            under_way += 1
            peak = max(peak, under_way)

    def leave() -> None:
        nonlocal under_way
        with lock:
            under_way -= 1

    together = threading.Barrier(3)

    def blocking(n: int) -> int:
        enter()
        together.wait(10)
        leave()
        return n

    async def awaiting(n: int) -> int:
        enter()
        for _ in range(5):
            await asyncio.sleep(0)
        leave()
        return n

    runnable = RunnableBatch(RunnableLambda(blocking, afunc=awaiting), max_concurrency=9)
    do(way, runnable, list(range(12)), {"max_concurrency": 3})
    assert peak == 3


def test_as_completed_gives_the_first_before_the_last_has_ended() -> None:
    may_end = threading.Event()

    def call(n: int) -> int:
        if n == 0:
            may_end.wait(20)
        return n

    indices = []
    for index, _ in RunnableBatch(RunnableLambda(call)).batch_as_completed([0, 1, 2]):
        indices.append(index)
        if len(indices) == 2:
            may_end.set()
    assert indices[-1] == 0


def test_leaving_as_completed_early_leaves_nothing_behind() -> None:
    started: list[int] = []

    async def call(n: int) -> int:
        started.append(n)
        if n:
            await asyncio.Event().wait()
        return n

    async def main() -> None:
        runnable = RunnableBatch(RunnableLambda(work, afunc=call), max_concurrency=2)
        pairs = runnable.abatch_as_completed(list(range(50)))
        assert await anext(pairs) == (0, 0)
        await pairs.aclose()  # type: ignore[attr-defined]
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(main())
    assert len(started) <= 4


def test_it_is_a_runnable_in_a_chain() -> None:
    added: Runnable[int, int] = RunnableBatch(RunnableLambda(lambda n: n + 1))
    piped = added | RunnableLambda(lambda n: n * 10)
    assert piped.invoke(1) == 20
    assert piped.batch([1, 2]) == [20, 30]
    assert list(RunnableBatch(chain()).stream({"n": 1})) == ["say 1"]
    assert asyncio.run(RunnableBatch(chain()).ainvoke({"n": 1})) == "say 1"


# --- what it adds ------------------------------------------------------------------------------------------


def named(name: str) -> Runnable[int, tuple[str, int]]:
    return RunnableLambda(lambda n: (name, n))


@pytest.mark.parametrize("way", WAYS)
def test_a_route_sends_each_input_to_its_chain(way: str) -> None:
    runnable = RunnableBatch(
        {"a": named("a"), "b": named("b")}, route=lambda n: "a" if n < 20 else "b", max_concurrency={"a": 5, "b": 3}
    )
    found = do(way, runnable, list(range(30)))
    values = found if way.endswith("batch") else [value for _, value in found]
    assert values == [("a", n) for n in range(20)] + [("b", n) for n in range(20, 30)]
    assert runnable.invoke(25) == ("b", 25)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_route_whichever_is_free_takes_the_next(way: str) -> None:
    both = threading.Barrier(2)

    def meet(name: str) -> Runnable[int, tuple[str, int]]:
        async def ameet(n: int) -> tuple[str, int]:
            await asyncio.sleep(0)
            return name, n

        def wait(n: int) -> tuple[str, int]:
            both.wait(10)
            return name, n

        return RunnableLambda(wait, afunc=ameet)

    found = do(way, RunnableBatch({"a": meet("a"), "b": meet("b")}, max_concurrency=1), list(range(6)))
    values = found if way.endswith("batch") else [value for _, value in found]
    assert [n for _, n in values] == list(range(6))
    assert {name for name, _ in values} == {"a", "b"}


def test_a_failed_row_never_receives_another_rows_answer() -> None:
    runnable = RunnableBatch({"a": RunnableLambda(work), "b": RunnableLambda(work)}, max_concurrency=3)
    found = runnable.batch(list(range(100)), return_exceptions=True)
    assert found == [Odd(n) if n % 10 == 7 else n * 2 for n in range(100)]


def test_attempts_are_tried_again() -> None:
    calls: Counter[int] = Counter()

    def flaky(n: int) -> int:
        calls[n] += 1
        if calls[n] == 1 and n == 2:
            raise Odd(n)
        return n

    assert RunnableBatch(RunnableLambda(flaky), attempts=2, backoff_s=0).batch([1, 2, 3]) == [1, 2, 3]
    assert calls == {1: 1, 2: 2, 3: 1}


def test_a_time_budget_leaves_the_rest_out() -> None:
    async def slow(n: int) -> int:
        if n == 3:
            await asyncio.Event().wait()  # the timeout ends it
        return n

    limits: dict[str, Any] = {"max_concurrency": 1, "max_duration_s": 0.12, "timeout_s": 0.2}
    runnable = RunnableBatch(RunnableLambda(work, afunc=slow), **limits)
    found: list[Any] = asyncio.run(runnable.abatch(list(range(60)), return_exceptions=True))
    assert found[0] == 0
    assert isinstance(found[-1], TimeoutError)
    assert "max_duration_s of 0.12 s" in str(found[-1])
    assert asyncio.run(runnable.abatch([5])) == [5]


def test_a_timeout_is_for_one_input() -> None:
    async def call(n: int) -> int:
        if n == 1:
            await asyncio.Event().wait()
        return n

    runnable = RunnableBatch(RunnableLambda(work, afunc=call), timeout_s=0.05)
    found: list[Any] = asyncio.run(runnable.abatch([0, 1, 2], return_exceptions=True))
    assert [found[0], found[2]] == [0, 2]
    assert isinstance(found[1], TimeoutError)


@pytest.mark.parametrize("run_file", [None, "x.rowmill"])
def test_a_rate_is_for_the_whole_batch(tmp_path: Path, run_file: str | None) -> None:
    calls: list[int] = []
    stored: dict[str, Any] = {} if run_file is None else {"run_file": tmp_path / run_file}
    runnable: Runnable[Any, Any] = RunnableBatch(RunnableLambda(calls.append), rpm=60, max_duration_s=0.3, **stored)
    found = runnable.batch(list(range(20)), return_exceptions=True)
    assert 1 <= len(calls) <= 2  # the second would be due after a second
    assert [type(value) for value in found[2:]] == [TimeoutError] * 18


# --- with a run file ---------------------------------------------------------------------------------------


def values_of(way: str, found: Any) -> Any:
    return found if way in ("batch", "abatch") else [value for _, value in found]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_file_makes_a_batch_resumable(tmp_path: Path, way: str) -> None:
    calls: list[Any] = []

    def call(message: HumanMessage, config: RunnableConfig) -> AIMessage:
        calls.append(message.content)
        return AIMessage(f"{message.content}, {config['tags']}")

    runnable = RunnableBatch(RunnableLambda(call), run_file=tmp_path / "x.rowmill", max_concurrency=2)
    inputs = [HumanMessage(str(n)) for n in range(10)]
    first = do(way, runnable, inputs[:6], {"tags": ["a"]})
    again = do(way, runnable, inputs, {"tags": ["a"]})
    assert values_of(way, again) == [AIMessage(f"{n}, ['a']") for n in range(10)]
    assert again[:6] == first
    assert sorted(calls) == [str(n) for n in range(10)]


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_from_a_run_file_is_of_the_types_that_the_chain_gives(tmp_path: Path, way: str) -> None:
    runnable = RunnableBatch(chain(), run_file=tmp_path / "x.rowmill")
    inputs = [{"n": n} for n in range(5)]
    theirs = chain().batch(inputs)
    fresh, resumed = (values_of(way, do(way, runnable, inputs)) for _ in range(2))
    assert fresh == resumed == theirs
    assert [type(one) for one in fresh] == [type(one) for one in resumed] == [type(one) for one in theirs]


class Counting:
    """Chains that count their calls; `broken` inputs raise."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.broken: set[int] = set()
        self.lock = threading.Lock()

    def named(self, name: str) -> Runnable[int, tuple[str, int]]:
        def call(n: int) -> tuple[str, int]:
            with self.lock:
                self.calls[n] += 1
            if n in self.broken:
                raise Odd(n)
            return name, n

        async def acall(n: int) -> tuple[str, int]:
            await asyncio.sleep(0)
            return call(n)

        return RunnableLambda(call, afunc=acall)


@pytest.mark.parametrize("way", WAYS)
def test_several_chains_share_a_run_file(tmp_path: Path, way: str) -> None:
    counting = Counting()
    chains = {"a": counting.named("a"), "b": counting.named("b"), "c": counting.named("c")}
    runnable = RunnableBatch(
        chains,
        route=lambda n: "b" if n % 10 == 3 else "a",  # nothing is for c
        max_concurrency={"a": 5, "b": 3},
        run_file=tmp_path / "x.rowmill",
    )
    do(way, runnable, list(range(30)))
    found = values_of(way, do(way, runnable, list(range(50))))
    assert found == [("b" if n % 10 == 3 else "a", n) for n in range(50)]
    assert counting.calls == dict.fromkeys(range(50), 1)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_route_chains_share_a_run_file_too(tmp_path: Path, way: str) -> None:
    counting = Counting()
    chains = {"a": counting.named("a"), "b": counting.named("b")}
    runnable = RunnableBatch(chains, max_concurrency=2, run_file=tmp_path / "x.rowmill")
    first = values_of(way, do(way, runnable, list(range(20))))
    again = values_of(way, do(way, runnable, list(range(40))))
    assert [n for _, n in again] == list(range(40))
    assert again[:20] == first
    assert counting.calls == dict.fromkeys(range(40), 1)


def test_a_slow_chain_keeps_no_input_from_a_quick_one(tmp_path: Path) -> None:
    quick_are_done = threading.Event()
    done: list[int] = []

    def slow(n: int) -> int:
        assert quick_are_done.wait(20)
        return n

    def quick(n: int) -> int:
        done.append(n)
        if len(done) == 100:
            quick_are_done.set()
        return n

    chains: dict[str, Runnable[int, int]] = {"slow": RunnableLambda(slow), "quick": RunnableLambda(quick)}
    stored: dict[str, Any]
    for stored in ({}, {"run_file": tmp_path / "x.rowmill"}):
        quick_are_done.clear()
        done.clear()
        runnable = RunnableBatch(chains, route=lambda n: "slow" if n < 50 else "quick", max_concurrency=1, **stored)
        assert runnable.batch(list(range(150))) == list(range(150))


class Unauthorised(Exception):
    status_code = 401


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_chain_that_is_out_gives_its_inputs_to_no_other(tmp_path: Path, is_stored: bool) -> None:
    def refuse(n: int) -> Any:
        raise Unauthorised(n)

    counting = Counting()
    chains: dict[str, Runnable[int, Any]] = {"out": RunnableLambda(refuse), "well": counting.named("well")}
    stored: dict[str, Any] = {"run_file": tmp_path / "x.rowmill"} if is_stored else {}
    runnable = RunnableBatch(chains, route=lambda n: "out" if n % 2 else "well", attempts=2, **stored)
    found: list[Any] = runnable.batch(list(range(40)), return_exceptions=True)
    assert found[::2] == [("well", n) for n in range(0, 40, 2)]
    assert {type(value) for value in found[1::2]} == {rowmill.StoppedError}
    assert sorted(counting.calls) == list(range(0, 40, 2))


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_row_of_a_run_file_is_tried_again_when_told_to(tmp_path: Path, way: str) -> None:
    counting = Counting()
    counting.broken = {3, 17}
    chains = {"a": counting.named("a"), "b": counting.named("b")}
    options: dict[str, Any] = {"run_file": tmp_path / "x.rowmill", "attempts": 2, "backoff_s": 0}
    first = values_of(way, do(way, RunnableBatch(chains, **options), list(range(20)), return_exceptions=True))
    assert [n for n, value in enumerate(first) if isinstance(value, Exception)] == [3, 17]
    assert (first[3], first[17]) == (Odd(3), Odd(17))
    again = values_of(way, do(way, RunnableBatch(chains, **options), list(range(20)), return_exceptions=True))
    assert (type(again[3]), str(again[3])) == (rowmill.RowError, "Odd: 3 (2 attempts)")
    assert (counting.calls[3], counting.calls[4]) == (2, 1)
    counting.broken.clear()
    mended = RunnableBatch(chains, **options, retry="failed")
    assert [n for _, n in values_of(way, do(way, mended, list(range(20))))] == list(range(20))


@pytest.mark.parametrize("way", ["batch_as_completed", "abatch_as_completed"])
def test_as_completed_gives_what_is_stored_first_and_what_failed_before_last(tmp_path: Path, way: str) -> None:
    counting = Counting()
    counting.broken = {0}
    runnable = RunnableBatch(counting.named("a"), run_file=tmp_path / "x.rowmill", max_concurrency=1)
    do(way, runnable, list(range(6)), return_exceptions=True)
    indices = []
    inputs = [10, 11, *range(6), 12]  # the stored ones are found again at other indices

    async def awaited() -> None:
        async for index, _ in runnable.abatch_as_completed(inputs, return_exceptions=True):
            indices.append(index)

    if way == "abatch_as_completed":
        asyncio.run(awaited())
    else:
        indices.extend(index for index, _ in runnable.batch_as_completed(inputs, return_exceptions=True))
    assert indices == [3, 4, 5, 6, 7, 0, 1, 8, 2]


def test_as_completed_that_is_left_early_keeps_what_has_ended(tmp_path: Path) -> None:
    counting = Counting()
    runnable = RunnableBatch(counting.named("a"), run_file=tmp_path / "x.rowmill", max_concurrency=1)
    for pair in runnable.batch_as_completed(list(range(3_000))):
        assert pair == (0, ("a", 0))
        break
    called = len(counting.calls)
    assert called < 3_000
    assert [n for _, n in runnable.batch(list(range(3_000)))] == list(range(3_000))
    assert counting.calls == dict.fromkeys(range(3_000), 1)


@pytest.mark.parametrize("way", WAYS)
def test_inputs_that_a_time_budget_left_out_are_called_the_next_time(tmp_path: Path, way: str) -> None:
    may_go_on = threading.Event()

    async def aslow(n: int) -> int:
        if n == 3 and not may_go_on.is_set():
            await asyncio.Event().wait()  # the timeout ends it
        return n

    def slow(n: int) -> int:
        if n == 3:
            may_go_on.wait(0.3)
        return n

    options: dict[str, Any] = {"run_file": tmp_path / "x.rowmill", "max_concurrency": 1, "timeout_s": 0.3}
    both = RunnableLambda(slow, afunc=aslow)
    short = RunnableBatch(both, max_duration_s=0.15, **options)
    found = values_of(way, do(way, short, list(range(60)), return_exceptions=True))
    assert found[:3] == [0, 1, 2]
    assert isinstance(found[-1], TimeoutError)
    assert "max_duration_s of 0.15 s" in str(found[-1])
    may_go_on.set()
    again = RunnableBatch(both, retry="failed", **options)
    assert values_of(way, do(way, again, list(range(60)))) == list(range(60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempt": 2}, "did you mean attempts"),
        ({"attempts": 0}, "attempts: must be"),
        ({"max_concurrency": {"b": 1}}, "there is no chain b"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rowmill.JobError, match=message):
        RunnableBatch(RunnableLambda(work), **options)


def test_a_route_to_nowhere_is_refused() -> None:
    with pytest.raises(rowmill.JobError, match="route: named 'c'; the chains are a, b"):
        RunnableBatch({"a": named("a"), "b": named("b")}, route=lambda n: "c").batch([1, 2])
