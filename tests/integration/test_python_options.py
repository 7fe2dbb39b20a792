"""What a job file says can be said in Python: endpoints, money, repair, pilots; and what does not belong is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.integration.test_answers_and_money import BAD, GOOD
from tests.integration.test_quoting import PRICE

import rowmill
from rowmill.api.options import _as_keyword
from rowmill.job.option_table import OPTIONS, Option
from rowmill.simulator import Behaviour, Simulator

if TYPE_CHECKING:
    from tests.workplace import Workplace

    from rowmill.core.pricing.quote import Quote

TEXTS = [f"[[row-{n}]]" for n in range(4)]
MOOD = "mood: good|bad"


def asked(simulator: Simulator, **more: Any) -> dict[str, Any]:
    return {"prompt": "{{ text }}", "model": "sim", "url": simulator.url, **more}


def test_repair_and_fallback_are_options(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": f"{BAD}, {GOOD}", "row-1": f"{BAD}...", "row-2": GOOD})) as simulator:
        found = rowmill.map(
            TEXTS[:3], **asked(simulator, answer=MOOD, repair=1, fallback={"mood": "bad"}, fallback_for=["invalid"])
        )
    assert [(row["mood"], row["_status"], row["_attempts"]) for row in found] == [
        ("good", "ok", 2),
        ("bad", "fallback", 2),
        ("good", "ok", 1),
    ]


def test_a_price_and_a_budget_are_options(workplace: Workplace) -> None:
    more = {"price": PRICE, "max_tokens": 100, "in_flight": 1}
    result = rowmill.run(
        workplace.write_rows(3), output=workplace.folder / "out.csv", **asked(workplace.simulator, **more)
    )
    assert result.cost_usd is not None
    assert result.cost_usd > 0
    with pytest.raises(rowmill.StoppedError, match=r"budget_usd of 0\.001 USD") as caught:
        rowmill.map(TEXTS, **asked(workplace.simulator, **more, budget_usd=0.001))
    assert caught.value.reason == "budget"


def test_endpoints_are_mappings_as_in_a_job_file(workplace: Workplace) -> None:
    endpoint = {"model": "sim", "url": workplace.simulator.url, "in_flight": 3, "rpm": 60_000, "params": {"top_p": 1}}
    found = rowmill.map(TEXTS, prompt="{{ text }}", endpoints=[endpoint])
    assert [row["answer"] for row in found] == [f"row-{n}" for n in range(4)]


def test_several_endpoints_share_the_rows_as_they_are_told(workplace: Workplace) -> None:
    first, rest = ({"model": name, "url": workplace.simulator.url} for name in ("dear", "cheap"))
    found = rowmill.map(TEXTS, prompt="{{ text }}", endpoints=[{**first, "take": 2}, rest])
    assert [(row["_endpoint"], row["answer"]) for row in found] == [
        ("dear", "row-0"),
        ("dear", "row-1"),
        ("cheap", "row-2"),
        ("cheap", "row-3"),
    ]


def test_equal_rows_are_sent_once_where_that_is_asked_for(workplace: Workplace) -> None:
    found = rowmill.map([TEXTS[0]] * 5, **asked(workplace.simulator, dedupe=True))
    assert [row["answer"] for row in found] == ["row-0"] * 5
    assert workplace.request_total() == 1


def test_what_is_expected_is_judged(workplace: Workplace) -> None:
    source = workplace.write("in.jsonl", '{"text": "[[row-0]]", "label": "row-0"}\n')
    more = asked(workplace.simulator, expect={"answer": "label"}, output=workplace.folder / "out.jsonl")
    assert rowmill.run(source, **more).counts == {"ok": 1}
    with pytest.raises(rowmill.JobError, match=r"expect: there is no column label"):
        rowmill.map(TEXTS, **asked(workplace.simulator, expect={"answer": "label"}))


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_pilot_shows_its_quote_and_goes_on_when_it_may(workplace: Workplace, goes_on: bool, is_awaited: bool) -> None:
    shown: list[Quote] = []

    def approve(quote: Quote) -> bool:
        shown.append(quote)
        return goes_on

    options = asked(workplace.simulator, price=PRICE, pilot=5, approve=approve, output=workplace.folder / "out.jsonl")
    source = workplace.write_rows(30)
    result = asyncio.run(rowmill.arun(source, **options)) if is_awaited else rowmill.run(source, **options)
    assert [(quote.rows, quote.sampled_rows) for quote in shown] == [(30, 5)]
    assert workplace.request_total() == (30 if goes_on else 5)
    assert (result.exit_code, "not approved" in result.message) == ((0, False) if goes_on else (4, True))


def test_a_pilot_under_a_budget_asks_nobody(workplace: Workplace) -> None:
    options = asked(workplace.simulator, price=PRICE, pilot=5, budget_usd=100, max_tokens=5)
    result = rowmill.run(workplace.write_rows(12), output=workplace.folder / "out.jsonl", **options)
    assert (result.counts, workplace.request_total()) == ({"ok": 12}, 12)


def test_a_pilot_that_nobody_looks_at_is_refused_also_where_a_job_file_asks_for_it(workplace: Workplace) -> None:
    source = workplace.write_rows(12)
    with pytest.raises(rowmill.JobError, match="pilot: give approve"):
        rowmill.run(source, output=workplace.folder / "out.jsonl", **asked(workplace.simulator, pilot=5))
    job = f"{{source: {source}, prompt: x, pilot: 5, endpoints: [{{model: sim, url: '{workplace.simulator.url}'}}]}}"
    with pytest.raises(rowmill.JobError, match="pilot: give approve"):
        asyncio.run(rowmill.arun(workplace.write("job.yaml", job)))
    assert workplace.request_total() == 0


# --- rows that end badly under a prompt ------------------------------------------------------------------


@pytest.fixture
def refusing() -> Any:
    """A server that refuses rows 1 and 3."""
    with Simulator(Behaviour(scripts={"row-1": "400...", "row-3": "400..."})) as simulator:
        yield simulator


def test_rows_that_end_badly_are_rows(refusing: Simulator) -> None:
    found = rowmill.map(TEXTS, **asked(refusing))
    assert [row["_status"] for row in found] == ["ok", "failed", "ok", "failed"]


@pytest.mark.parametrize("is_awaited", [False, True])
def test_exceptions_stand_in_their_rows_places_where_that_is_asked_for(refusing: Simulator, is_awaited: bool) -> None:
    options = asked(refusing, on_error="return")
    found: list[Any] = asyncio.run(rowmill.amap(TEXTS, **options)) if is_awaited else rowmill.map(TEXTS, **options)
    assert [type(row) for row in found] == [dict, rowmill.RowError, dict, rowmill.RowError]
    assert (found[1].row, found[1].status) == (1, "failed")
    assert "400" in str(found[1])


@pytest.mark.parametrize("rows", [TEXTS, pl.DataFrame({"text": TEXTS})], ids=["texts", "frame"])
def test_the_first_bad_row_is_raised_when_all_are_tried_and_saved(refusing: Simulator, rows: Any) -> None:
    with pytest.raises(rowmill.RowError, match="400") as caught:
        rowmill.map(rows, **asked(refusing, on_error="raise"))
    assert caught.value.row == 1
    [note] = caught.value.__notes__
    run_file = note.split("'")[1]
    sent = sum(refusing.counters()["tokens"].values())
    again = rowmill.map(rows, **asked(refusing, run_file=run_file))
    statuses = again["_status"].to_list() if isinstance(again, pl.DataFrame) else [row["_status"] for row in again]
    assert statuses == ["ok", "failed", "ok", "failed"]
    assert (sent, sum(refusing.counters()["tokens"].values())) == (4, 4)


def test_rows_that_are_all_well_raise_nothing(workplace: Workplace) -> None:
    found = rowmill.map(["", *TEXTS], **asked(workplace.simulator, on_error="raise", empty="skip"))
    assert [row["_status"] for row in found] == ["skipped", "ok", "ok", "ok", "ok"]


def test_a_frame_cannot_hold_exceptions() -> None:
    with pytest.raises(rowmill.JobError, match="a frame cannot hold exceptions"):
        rowmill.map(pl.DataFrame({"text": TEXTS}), prompt="{{ text }}", model="sim", on_error="return")


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoints": [{"modle": "sim"}], "model": None, "url": None}, r"endpoints\[0\]\.modle: unknown key; did you"),
        ({"endpoints": "sim", "model": None, "url": None}, "endpoints: must be a list of mappings"),
        ({"endpoints": [{"model": "sim"}]}, "model, url: belongs to one endpoint"),
        ({"price": {"inpt": 1}}, r"price\.inpt: unknown key; did you mean input"),
        ({"budget_usd": -1}, "budget_usd: must be"),
        ({"repair": 99, "answer": MOOD}, "repair: must be between 0 and 10"),
        ({"fallback_for": "odd", "answer": MOOD}, "fallback_for: odd is none of"),
        ({"on_error": "ignore"}, "on_error: must be"),
        ({"pilot": 5}, r"pilot: is for rowmill\.run"),
        ({"version": 1}, r"version: is an option of rowmill\.map with call only"),
        ({"budget": 1}, "budget: unknown option; did you mean budget_usd"),
    ],
)
def test_what_does_not_belong_is_refused_by_map(options: dict[str, Any], message: str) -> None:
    usual = {"prompt": "{{ text }}", "model": "sim", "url": "http://127.0.0.1:9/v1"}
    with pytest.raises(rowmill.JobError, match=message):
        rowmill.map(TEXTS, **{**usual, **options})


def test_options_of_map_are_refused_by_run_and_those_of_prompts_for_functions() -> None:
    options: dict[str, Any] = {"prompt": "x", "model": "sim", "output": "out.csv", "retry": "failed"}
    with pytest.raises(rowmill.JobError, match=r"retry: is an option of rowmill\.map with a prompt only"):
        rowmill.run("in.csv", **options)
    for name, value in (("budget_usd", 1), ("dedupe", True), ("where", "id"), ("source", "x")):
        options = {"call": str, name: value}
        with pytest.raises(rowmill.JobError, match=f"^{name}: "):
            rowmill.map(TEXTS, **options)


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.python and option.commands], ids=lambda option: option.name
)
def test_errors_name_the_argument_and_not_the_flag(option: Option) -> None:
    assert _as_keyword(f"{option.flag}: wrong") == f"{option.name}: wrong"
