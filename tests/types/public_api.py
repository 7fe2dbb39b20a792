"""The public API as its users' type checkers see it: read by mypy and basedpyright, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import polars
from langchain_core.runnables import RunnableLambda

import rowmill
from rowmill.integrations.langchain import RunnableBatch


def length(text: str) -> int:
    return len(text)


async def awaited_length(text: str) -> int:
    return len(text)


def runs() -> None:
    result = rowmill.run("in.csv", prompt="{{ text }}", model="openai/m", output="out.jsonl", attempts=3)
    assert_type(result, rowmill.Result)
    assert_type(result.exit_code, int)
    assert_type(result.counts, Mapping[str, int])
    assert_type(result.cost_usd, float | None)
    assert_type(next(result.rows()), dict[str, Any])


def maps(frame: polars.DataFrame) -> None:
    assert_type(rowmill.map(["a", "b"], prompt="{{ text }}", model="m"), list[dict[str, Any]])
    assert_type(rowmill.map([{"text": "a"}], prompt="{{ text }}", model="m"), list[dict[str, Any]])
    assert_type(rowmill.map(frame, prompt="{{ text }}", model="m"), polars.DataFrame)
    assert_type(rowmill.map(["a"], call=length), list[int])
    assert_type(rowmill.map(["a"], call=awaited_length), list[int])


async def awaits(frame: polars.DataFrame) -> None:
    assert_type(await rowmill.arun("in.csv", prompt="{{ text }}", model="m"), rowmill.Result)
    assert_type(await rowmill.amap(["a"], prompt="{{ text }}", model="m"), list[dict[str, Any]])
    assert_type(await rowmill.amap(frame, prompt="{{ text }}", model="m"), polars.DataFrame)
    assert_type(await rowmill.amap(["a"], call=awaited_length), list[int])
    assert_type(await rowmill.amap(["a"], call=length), list[int])


def errors() -> str:
    try:
        runs()
    except rowmill.JobError as error:
        assert_type(error, rowmill.JobError)
        return str(error)
    except rowmill.RowmillError:
        raise
    return ""


def chains() -> None:
    batch = RunnableBatch(RunnableLambda(length), max_concurrency=8)
    assert_type(batch, RunnableBatch[str, int])
    assert_type(batch.invoke("a"), int)
    assert_type(batch.batch(["a"]), list[int])
