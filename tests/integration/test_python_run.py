"""`rowmill.run` and `rowmill.arun` against the simulator."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from pydantic import BaseModel

import rowmill

if TYPE_CHECKING:
    from tests.workplace import Workplace


def arguments(workplace: Workplace, **more: Any) -> dict[str, Any]:
    usual = {"prompt": "Say it: {{ text }}", "model": "sim", "url": workplace.simulator.url}
    return {**usual, "output": workplace.folder / "out.jsonl", **more}


def tokens(rows: list[dict[str, Any]]) -> list[str]:
    return [row["answer"] for row in rows]


def test_a_run_returns_what_became_of_the_rows(workplace: Workplace) -> None:
    result = rowmill.run(workplace.write_rows(30), **arguments(workplace))
    assert (result.counts, result.exit_code, result.message) == ({"ok": 30}, 0, "")
    assert (result.output, result.failures) == (str(workplace.folder / "out.jsonl"), None)
    assert result.run_file == str(workplace.folder / "out.jsonl.rowmill")
    assert tokens(workplace.output()) == [f"row-{n}" for n in range(30)]
    assert "30 ok" in repr(result)
    assert repr(result.counts) == "{'ok': 30}"


def test_the_same_call_again_sends_nothing(workplace: Workplace) -> None:
    source = workplace.write_rows(20)
    rowmill.run(source, **arguments(workplace))
    again = rowmill.run(source, **arguments(workplace))
    assert (again.counts, workplace.request_total()) == ({"ok": 20}, 20)


def test_rows_and_arrow_come_from_the_run_file(workplace: Workplace) -> None:
    result = rowmill.run(workplace.write_rows(2_500), **arguments(workplace, in_flight=64))
    (workplace.folder / "out.jsonl").unlink()
    rows = list(result.rows())
    assert [row["_row"] for row in rows] == list(range(2_500))
    assert list(result.rows(limit=2)) == rows[:2]
    assert list(result.rows("failed")) == []
    table = result.to_arrow()
    assert table.column("answer").to_pylist() == tokens(rows)
    assert table.schema.field("_row").type == pa.int64()
    assert pa.table(result) == table
    with pytest.raises(rowmill.JobError, match="there is no odd"):
        result.rows("odd")


def test_rows_can_be_chosen_by_status(workplace: Workplace) -> None:
    source = workplace.write("in.jsonl", '{"text": "[[row-0]]"}\nnot json\n{"text": "[[row-2]]"}\n')
    result = rowmill.run(source, **arguments(workplace))
    assert (result.exit_code, result.counts) == (3, {"ok": 2, "failed": 1})
    [bad] = result.rows(status="failed")
    assert (bad["_row"], bad["_status"], type(bad["_status"])) == (1, "failed", str)
    assert [row["_row"] for row in result.rows(status=["ok", "invalid"])] == [0, 2]


def test_it_works_twice_in_one_process_and_in_a_thread_and_in_a_running_loop(workplace: Workplace) -> None:
    source = workplace.write_rows(5)
    ended: list[dict[str, int]] = []

    def one(name: str) -> None:
        ended.append(dict(rowmill.run(source, **arguments(workplace, output=workplace.folder / name)).counts))

    async def in_a_loop() -> None:
        one("loop.jsonl")

    one("first.jsonl")
    thread = threading.Thread(target=one, args=("thread.jsonl",))
    thread.start()
    thread.join()
    asyncio.run(in_a_loop())
    assert ended == [{"ok": 5}] * 3


def test_arun_runs_on_the_callers_loop_which_stays_free(workplace: Workplace) -> None:
    source = workplace.write_rows(40)
    turns = 0

    async def main() -> rowmill.Result:
        nonlocal turns
        running = asyncio.create_task(rowmill.arun(source, **arguments(workplace)))
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        return await running

    result = asyncio.run(main())
    assert (result.counts, tokens(workplace.output())) == ({"ok": 40}, [f"row-{n}" for n in range(40)])
    assert turns > 10


def test_a_cancelled_arun_can_be_gone_on_with(workplace: Workplace) -> None:
    source = workplace.write_rows(400)

    async def main() -> None:
        running = asyncio.create_task(rowmill.arun(source, **arguments(workplace, in_flight=2)))
        while workplace.request_total() < 20:  # noqa: ASYNC110 - another process's counter has no event
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert others == []

    asyncio.run(main())
    assert rowmill.run(source, **arguments(workplace)).counts == {"ok": 400}
    assert workplace.request_total() <= 400 + 2


class Sentiment(BaseModel):
    label: Literal["good", "bad"]
    score: float


@dataclass
class Rating:
    label: Literal["good", "bad"]
    score: float


@pytest.mark.parametrize("answer", [Sentiment, Rating, "label: good|bad, score: number"])
def test_a_class_or_shorthand_says_what_an_answer_looks_like(workplace: Workplace, answer: Any) -> None:
    source = workplace.write("in.jsonl", '{"text": "x"}\n')
    result = rowmill.run(source, **arguments(workplace, answer=answer))
    table = result.to_arrow()
    assert table.schema.field("label").type == pa.string()
    assert table.schema.field("score").type == pa.float64()


def test_a_job_file_takes_options_over_it(workplace: Workplace) -> None:
    workplace.write_rows(10)
    job = "source: in.csv\nprompt: '{{ text }}'\noutput: o.csv\nendpoints: [{model: sim, url: 'URL'}]\n"
    source = workplace.write("job.yaml", job.replace("URL", workplace.simulator.url))
    result = rowmill.run(source, limit=3, timeout_s=60)
    assert (result.counts, result.output) == ({"ok": 3}, str(workplace.folder / "o.csv"))


def test_an_unknown_option_is_refused_with_the_nearest_name(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match="did you mean in_flight"):
        rowmill.run(workplace.write_rows(1), **arguments(workplace, max_concurency=3))


def test_faults_name_the_keyword(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match=r"^in_flight: must be"):
        rowmill.run(workplace.write_rows(1), **arguments(workplace, in_flight=-1))


def test_rows_are_not_a_source_of_run(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match=r"rowmill\.map"):
        rowmill.run([{"text": "x"}], **arguments(workplace))  # type: ignore[list-item]


def test_something_without_fields_is_no_answer(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match="answer: must be"):
        rowmill.run(workplace.write_rows(1), **arguments(workplace, answer=object()))


def test_a_changed_prompt_is_refused_until_it_is_decided_on(workplace: Workplace) -> None:
    source = workplace.write_rows(3)
    rowmill.run(source, **arguments(workplace))
    changed = arguments(workplace, prompt="Tell it: {{ text }}")
    with pytest.raises(rowmill.ChangedError, match="prompt changed"):
        rowmill.run(source, **changed)
    with pytest.raises(rowmill.JobError, match="on_change"):
        rowmill.run(source, **changed, on_change="maybe")  # type: ignore[arg-type]
    rowmill.run(source, **changed, on_change="rerun")
    assert workplace.request_total() == 6


def test_what_the_user_should_read_goes_to_the_log(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    source = workplace.write_rows(3)
    rowmill.run(source, **arguments(workplace))
    workplace.write_rows(3, first=1)
    with caplog.at_level(logging.WARNING, logger="rowmill"):
        rowmill.run(source, **arguments(workplace))
    assert "the input has changed: 2 finished rows were found again" in caplog.text
