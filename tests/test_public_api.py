"""The public surface: every name, every parameter.  A change here is a change for users."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import rowmill

SURFACE = {
    "ChangedError": "error",
    "JobError": "error",
    "LockedError": "error",
    "OutputError": "error",
    "Result": "class",
    "RowError": "error",
    "RowmillError": "error",
    "RunFileError": "error",
    "SourceError": "error",
    "StoppedError": "error",
    "StoreFullError": "error",
    "amap": "coroutine",
    "arun": "coroutine",
    "map": "function",
    "run": "function",
}
RUN = ["source", "prompt", "model", "output", "answer", "options"]
MAP = ["rows", "prompt", "model", "answer", "call", "options"]
PARAMETERS = {"run": RUN, "arun": RUN, "map": MAP, "amap": MAP}
ASK_OPTIONS = {
    "repair",
    "price",
    "http",
    "fallback_for",
    "fallback",
    "expect",
    "endpoints",
    "dedupe",
    "static_prompt",
    "budget_usd",
    "answer_prefix",
    "attempts",
    "backoff_s",
    "ca_file",
    "connect_timeout_s",
    "empty",
    "headers",
    "headroom",
    "in_flight",
    "input_tpm",
    "key_env",
    "key_file",
    "max_backoff_s",
    "max_duration_s",
    "max_failure_rate",
    "max_outage_s",
    "max_tokens",
    "meta_prefix",
    "on_change",
    "output_tpm",
    "params",
    "progress",
    "row_timeout_s",
    "rpm",
    "run_file",
    "system",
    "temperature",
    "timeout_s",
    "tpm",
    "url",
}
RUN_OPTIONS = ASK_OPTIONS | {
    "approve",
    "pilot",
    "delimiter",
    "encoding",
    "escape_formulas",
    "format",
    "fresh",
    "id",
    "limit",
    "mode",
    "query",
    "sample",
    "seed",
    "table",
    "sheet",
    "split_rows",
    "where",
}
MAP_OPTIONS = ASK_OPTIONS | {"on_error", "retry"}
CALL_OPTIONS = {
    "attempts",
    "backoff_s",
    "headroom",
    "in_flight",
    "max_backoff_s",
    "max_duration_s",
    "max_failure_rate",
    "max_outage_s",
    "on_change",
    "on_error",
    "progress",
    "retry",
    "row_timeout_s",
    "rpm",
    "run_file",
    "timeout_s",
    "version",
}
BATCH_OPTIONS = {
    "attempts",
    "backoff_s",
    "max_backoff_s",
    "max_duration_s",
    "on_change",
    "retry",
    "rpm",
    "run_file",
    "timeout_s",
    "version",
}
RESULT = [
    "cost_usd",
    "counts",
    "exit_code",
    "failures",
    "figures",
    "message",
    "output",
    "rows",
    "run_file",
    "to_arrow",
]


def kind(value: Any) -> str:
    if isinstance(value, type):
        return "error" if issubclass(value, Exception) else "class"
    return "coroutine" if inspect.iscoroutinefunction(value) else "function"


def test_the_package_offers_these_names_and_no_others() -> None:
    assert {name: kind(getattr(rowmill, name)) for name in rowmill.__all__} == SURFACE
    assert set(rowmill.__all__) <= set(dir(rowmill))


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_functions_take_these_parameters(name: str, parameters: list[str]) -> None:
    function: Callable[..., Any] = getattr(rowmill, name)
    assert list(inspect.signature(function).parameters) == parameters


def test_run_and_map_take_these_options() -> None:
    from rowmill.api.options import CallOptions, MapOptions, RunOptions

    assert set(RunOptions.__annotations__) == RUN_OPTIONS
    assert set(MapOptions.__annotations__) == MAP_OPTIONS
    assert set(CallOptions.__annotations__) == CALL_OPTIONS


def test_everything_that_a_job_file_says_can_be_said_in_python() -> None:
    from rowmill.api.options import MapOptions, RunOptions
    from rowmill.job import AnswerSpec, Job, RetrySpec

    said = {*RunOptions.__annotations__, *MapOptions.__annotations__, *RUN}
    parts: list[Any] = [Job, AnswerSpec, RetrySpec]  # and all of an endpoint in `endpoints`
    keys = {field.alias or name for part in parts for name, field in part.model_fields.items()}
    assert keys - said == {"schema"}  # which `answer` is


def test_batches_take_these_options() -> None:
    from rowmill.integrations.langchain import BatchOptions, RunnableBatch

    assert set(BatchOptions.__annotations__) == BATCH_OPTIONS
    parameters = ["chains", "route", "max_concurrency", "options"]
    assert list(inspect.signature(RunnableBatch).parameters) == parameters


def test_a_result_has_these_members() -> None:
    assert [name for name in dir(rowmill.Result) if not name.startswith("_")] == RESULT


def test_everything_public_is_documented() -> None:
    undocumented = [name for name in rowmill.__all__ if not (getattr(rowmill, name).__doc__ or "").strip()]
    undocumented += [name for name in RESULT if not inspect.getdoc(getattr(rowmill.Result, name))]
    assert undocumented == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = rowmill.rnu


def test_importing_the_package_loads_none_of_its_libraries() -> None:
    heavy = ["pydantic", "pyarrow", "jinja2", "msgspec", "pyreqwest", "rich", "typer", "asyncio", "langchain_core"]
    code = f"import sys, rowmill; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_langchain_its_part_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain_core'] = None; import rowmill.integrations.langchain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'rowmill[langchain]'" in done.stderr.splitlines()[-1]
