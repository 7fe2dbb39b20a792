"""`rowmill.map` and `rowmill.amap` with a prompt: rows and frames in, the same kind out."""

from __future__ import annotations

import asyncio
import datetime
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import datasets
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rowmill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.workplace import Workplace

ADDED = [
    "answer",
    "_row",
    "_status",
    "_error",
    "_endpoint",
    "_model",
    "_attempts",
    "_latency_s",
    "_input_tokens",
    "_output_tokens",
    "_cost_usd",
]
NUMBERS = list(range(2_345))
TEXTS = [f"[[row-{n}]]" for n in NUMBERS]
ANSWERS = [f"row-{n}" for n in NUMBERS]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary run files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def arguments(workplace: Workplace, **more: Any) -> dict[str, Any]:
    usual = {"prompt": "Say it: {{ text }}", "model": "sim", "url": workplace.simulator.url, "in_flight": 50}
    return {**usual, **more}


def test_mappings_come_back_as_dicts_with_the_answer(workplace: Workplace, temporary: Path) -> None:
    day = datetime.date(2024, 5, 1)
    rows = [{"id": n, "text": text, "day": day} for n, text in zip(NUMBERS, TEXTS, strict=True)]
    found = rowmill.map(rows, **arguments(workplace))
    assert [row["answer"] for row in found] == ANSWERS
    assert list(found[0]) == ["id", "text", "day", *ADDED]
    assert (found[0]["day"], found[7]["_row"], found[0]["_status"]) == (day, 7, "ok")
    assert type(found[0]["_status"]) is str
    assert "answer" not in rows[0]
    assert list(temporary.iterdir()) == []


def test_texts_and_generators_are_rows(workplace: Workplace) -> None:
    def texts() -> Iterator[str]:
        yield from TEXTS[:3]

    found = rowmill.map(texts(), **arguments(workplace))
    assert [(row["text"], row["answer"]) for row in found] == list(zip(TEXTS[:3], ANSWERS[:3], strict=True))


def test_no_rows_are_no_rows(workplace: Workplace) -> None:
    assert rowmill.map([], **arguments(workplace)) == []
    empty = pl.DataFrame({"text": pl.Series([], dtype=pl.String)})
    assert rowmill.map(empty, **arguments(workplace)).columns == ["text", *ADDED]


def test_a_pandas_frame_comes_back_with_its_index_and_its_types(workplace: Workplace) -> None:
    frame = pd.DataFrame(
        {"text": TEXTS, "n": pd.array(NUMBERS, dtype="Int16"), "kind": pd.Categorical(["a"] * len(TEXTS))},
        index=[f"r{n}" for n in NUMBERS],
    )
    found = rowmill.map(frame, **arguments(workplace))
    assert type(found) is pd.DataFrame
    pd.testing.assert_frame_equal(found[frame.columns], frame)
    assert list(found.columns) == ["text", "n", "kind", *ADDED]
    assert list(found["answer"]) == ANSWERS
    assert str(found["_row"].dtype) == "int64"
    assert list(frame.columns) == ["text", "n", "kind"]


def test_missing_whole_numbers_stay_whole_in_pandas(workplace: Workplace) -> None:
    frame = pd.DataFrame({"text": ["", "x"]})
    found = rowmill.map(frame, **arguments(workplace, answer="stars: integer", empty="skip"))
    assert found["_status"].tolist()[0] == "skipped"
    assert (str(found["_input_tokens"].dtype), found["_input_tokens"].isna().tolist()) == ("Int64", [True, False])


def test_a_polars_frame_comes_back_as_one(workplace: Workplace) -> None:
    frame = pl.DataFrame({"text": TEXTS, "at": pl.Series(NUMBERS, dtype=pl.Datetime("ns"))})
    found = rowmill.map(frame, **arguments(workplace))
    assert type(found) is pl.DataFrame
    assert found.select(frame.columns).equals(frame)
    assert found.columns == ["text", "at", *ADDED]
    assert found["answer"].to_list() == ANSWERS


def test_a_lazy_frame_must_be_collected(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match="collect"):
        rowmill.map(pl.LazyFrame({"text": ["x"]}), **arguments(workplace))  # type: ignore[call-overload]


def test_arrow_comes_back_as_the_kind_that_it_was(workplace: Workplace) -> None:
    table = pa.table({"text": TEXTS[:20]}, metadata={"made": "here"})
    batch = pa.record_batch({"text": TEXTS[:20]})
    found = rowmill.map(table, **arguments(workplace))
    assert (type(found), found.schema.metadata) == (pa.Table, {b"made": b"here"})
    assert found.column("answer").to_pylist() == ANSWERS[:20]
    assert type(rowmill.map(batch, **arguments(workplace))) is pa.RecordBatch
    assert type(rowmill.map(batch.slice(0, 0), **arguments(workplace))) is pa.RecordBatch
    reader = rowmill.map(table.to_reader(), **arguments(workplace))
    assert type(reader) is pa.RecordBatchReader
    assert reader.read_all().column("answer").to_pylist() == ANSWERS[:20]


def test_a_duckdb_relation_comes_back_as_one(workplace: Workplace) -> None:
    relation = duckdb.sql("SELECT '[[row-' || range || ']]' AS text, range AS n FROM range(5)")
    assert relation is not None
    found = rowmill.map(relation, **arguments(workplace))
    assert type(found) is type(relation)
    assert found.select("n", "answer").fetchall() == [(n, f"row-{n}") for n in range(5)]


def hugging_face_data() -> datasets.Dataset:
    features = datasets.Features(
        {
            "id": datasets.Value("int32"),
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    columns = {"id": NUMBERS, "text": TEXTS, "label": [n % 2 for n in NUMBERS]}
    return datasets.Dataset.from_dict(columns, features=features)


def test_a_hugging_face_data_set_comes_back_as_one_with_its_features(workplace: Workplace) -> None:
    # Chosen rows in another order: the library keeps that as indices beside the table.
    chosen = hugging_face_data().select(range(2_344, 44, -1))
    found = rowmill.map(chosen, **arguments(workplace))
    assert isinstance(found, datasets.Dataset)
    assert found["answer"] == ANSWERS[2_344:44:-1]
    assert found.select_columns(["id", "text", "label"])[:] == chosen[:]
    assert {name: found.features[name] for name in chosen.features} == chosen.features
    assert found.column_names == ["id", "text", "label", *ADDED]


def test_a_hugging_face_stream_comes_back_as_a_stream(workplace: Workplace) -> None:
    stream = hugging_face_data().to_iterable_dataset(num_shards=3).take(1_500)
    found = rowmill.map(stream, **arguments(workplace))
    assert isinstance(found, datasets.IterableDataset)
    rows = list(found)
    assert [row["answer"] for row in rows] == ANSWERS[:1_500]
    assert [row["label"] for row in rows] == [n % 2 for n in range(1_500)]


def test_several_hugging_face_splits_are_refused_with_their_names(workplace: Workplace) -> None:
    splits = datasets.DatasetDict({"train": hugging_face_data(), "test": hugging_face_data()})
    with pytest.raises(rowmill.JobError, match="name one of train, test"):
        rowmill.map(splits, **arguments(workplace))


def test_a_result_can_be_mapped_again(workplace: Workplace) -> None:
    result = rowmill.run(workplace.write_rows(4), output=workplace.folder / "out.jsonl", **arguments(workplace))
    found = rowmill.map(pa.table(result), **arguments(workplace, answer_prefix="again_", meta_prefix="again_"))
    assert found.column("again_answer").to_pylist() == ANSWERS[:4]


def test_a_run_file_makes_a_map_resumable(workplace: Workplace, temporary: Path) -> None:
    run_file = workplace.folder / "x.rowmill"
    rowmill.map(TEXTS[:10], **arguments(workplace, run_file=run_file))
    frame = pl.DataFrame({"text": TEXTS[:15]})
    found = rowmill.map(frame, **arguments(workplace, run_file=run_file))
    assert found["answer"].to_list() == ANSWERS[:15]
    assert workplace.request_total() == 15
    assert list(temporary.iterdir()) == []


def test_rows_that_failed_are_asked_about_again_when_told_to(workplace: Workplace) -> None:
    rows = arguments(workplace, run_file=workplace.folder / "x.rowmill", empty="fail")
    assert [row["_status"] for row in rowmill.map(["", *TEXTS[:2]], **rows)] == ["failed", "ok", "ok"]
    assert [row["_status"] for row in rowmill.map(["", *TEXTS[:2]], **rows, retry="ok")] == ["failed", "ok", "ok"]
    assert workplace.request_total() == 4
    with pytest.raises(rowmill.JobError, match="retry: there is no bad"):
        rowmill.map(TEXTS[:1], **rows, retry="bad")


def test_rows_that_are_left_are_an_error_that_says_how_to_go_on(workplace: Workplace, temporary: Path) -> None:
    with pytest.raises(rowmill.StoppedError, match="run_file=") as caught:
        rowmill.map(TEXTS, **arguments(workplace, in_flight=1, max_duration_s=0.3))
    assert caught.value.reason == "max_duration"
    sent = workplace.request_total()
    assert sent < len(TEXTS)
    assert caught.value.run_file is not None
    found = rowmill.map(TEXTS, **arguments(workplace, run_file=caught.value.run_file))
    assert [row["answer"] for row in found] == ANSWERS
    assert workplace.request_total() == len(TEXTS)


def test_amap_works_on_the_running_loop(workplace: Workplace) -> None:
    async def main() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(rowmill.amap(TEXTS[n : n + 2], **arguments(workplace)) for n in range(3)))

    found = asyncio.run(main())
    assert [[row["answer"] for row in rows] for rows in found] == [ANSWERS[n : n + 2] for n in range(3)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("text", "must be a frame"),
        ({"text": "x"}, "must be a frame"),
        (3, "must be a frame"),
        ([["a", "b"]], "row 0 is of type list"),
        ([{1: "x"}], "row 0 has a column named 1"),
        ([{"text": "x", "answer": 1}], "answer"),
        (pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), "more than one column named text"),
        (pd.DataFrame({"text": ["x", 1, object()]}), "Arrow cannot hold"),
        ([{"other": "x"}], "other"),
    ],
)
def test_what_is_no_row_is_refused_before_anything_is_sent(
    workplace: Workplace, temporary: Path, rows: Any, message: str
) -> None:
    with pytest.raises(rowmill.JobError, match=message):
        rowmill.map(rows, **arguments(workplace))
    assert workplace.request_total() == 0
    assert list(temporary.iterdir()) == []


def test_options_of_files_are_refused(workplace: Workplace) -> None:
    with pytest.raises(rowmill.JobError, match=r"limit: is for rowmill\.run"):
        rowmill.map(TEXTS, **arguments(workplace, limit=3))
