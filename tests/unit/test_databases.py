"""Addresses of databases, tables' names, targets, and keys of an upsert."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.core.names.databases import (
    DatabaseUrl,
    Target,
    database_url,
    in_folder,
    is_database,
    make_target,
    name_faults,
    shown,
    table,
)
from rowmill.core.rows.chunks import ObjectChunk
from rowmill.errors import JobError, OutputError
from rowmill.job import Job, apply_overrides, job_from_options, load_job
from rowmill.ports import Chunk
from rowmill.store.ids import unique_ids

DATABASE = "postgresql://me:s3cret@h:5432/shop"
ASKED = {"prompt": "{{ text }}", "model": "vllm/m"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (DATABASE, "postgresql://me@h:5432/shop"),
        ("postgresql://me:p%40ss@a:1,b:2/shop", "postgresql://me@a:1,b:2/shop"),
        ("postgresql://h/shop?password=s3cret&sslmode=require", "postgresql://h/shop?sslmode=require"),
        ("postgresql://h/shop?sslpassword=s3cret", "postgresql://h/shop"),
        ("postgres:///shop", "postgres:///shop"),
        ("postgresql://me:$SECRET@h/shop", "postgresql://me:$SECRET@h/shop"),
        ("sqlite:///a b@c:d.db", "sqlite:///a b@c:d.db"),
    ],
)
def test_an_address_as_text_holds_no_password(given: str, text: str) -> None:
    made = database_url(given)
    assert (str(made), f"{made}", repr(made)) == (text, text, repr(text))
    assert made.connection_url({"SECRET": "x"}).replace(":x@", ":$SECRET@") == given


def test_a_password_may_be_a_variables() -> None:
    made = database_url("postgresql://me:${DB_PASSWORD}@h/shop")
    assert made.connection_url({"DB_PASSWORD": "a/b@c"}) == "postgresql://me:a%2Fb%40c@h/shop"
    with pytest.raises(KeyError, match="DB_PASSWORD"):
        made.connection_url({})


@pytest.mark.parametrize(
    "url", ["postgresql://me:p%40ss@h/d", "postgresql://me:$P@h/d", "postgresql://h/d?password=p%40ss"]
)
def test_what_a_driver_says_is_shown_without_the_password(url: str) -> None:
    assert database_url(url).redact("it is p@ss or so", {"P": "p@ss"}) == "it is *** or so"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://file.db", "three slashes"),
        ("sqlite:/file.db", "must be a database like"),
        ("sqlite:///?x", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
        ("sqlite:///a.db?mode=ro", "nothing but the file"),
        ("postgresql://a b/c", "%XX"),
        ("postgresql://me:a#b@h/c", "%XX"),
    ],
)
def test_what_leads_to_no_database_is_refused_without_being_repeated(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        database_url(url)
    assert url not in str(refused.value)


def test_only_a_databases_url_is_one() -> None:
    assert all(map(is_database, ["postgresql://h/d", "postgres://h", "SQLITE:///a", "duckdb:///a", "sqlite:/a"]))
    assert not any(map(is_database, ["sqlite.csv", "postgresql/in.csv", "https://h/d", "-", "duckdb"]))


@pytest.mark.parametrize(
    ("text", "parts"),
    [("reviews", ("reviews",)), ("shop.Reviews", ("shop", "Reviews")), ('"a.b"."c""d"', ("a.b", 'c"d'))],
)
def test_a_table_is_named_exactly(text: str, parts: tuple[str, ...]) -> None:
    assert table(text).parts == parts


@pytest.mark.parametrize("text", ["", " ", "a.", ".a", "a..b", 'a"b', "a.b.c.d", '"a', "a\0"])
def test_what_names_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a table"):
        table(text)


def test_a_quoted_name_cannot_leave_its_quotes() -> None:
    assert table('"x""; DROP TABLE y; --"').quoted == '"x""; DROP TABLE y; --"'


@pytest.mark.parametrize(
    ("url", "name", "stem"),
    [
        (DATABASE, "shop.labels", "shop.shop.labels"),
        ("postgresql://h", "../../x", "postgres._.._x"),
        ("sqlite:///data/a.db", "labels", "data/a.db.labels"),
        ("duckdb:////tmp/a.db", '"my labels"', "/tmp/a.db.my_labels"),
    ],
)
def test_the_run_file_of_a_table_is_named_after_it(url: str, name: str, stem: str) -> None:
    assert Target(database_url(url), name).stem() == stem


@pytest.mark.parametrize(
    ("table_name", "mode", "id", "words"),
    [
        (None, None, None, "needs --table"),
        ("t", "insert", None, "must be one of create, append, replace, upsert"),
        ("t", "upsert", None, "go together"),
        ("t", "append", "id", "go together"),
    ],
)
def test_a_target_that_is_not_whole_is_refused(
    table_name: str | None, mode: str | None, id: str | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make_target(database_url(DATABASE), table_name, mode, id)


def test_names_that_a_database_would_change_are_faults() -> None:
    assert name_faults("postgresql", ["a", "A", "ä" * 31]) == []
    assert "63 bytes" in name_faults("postgresql", ["ä" * 32])[0]
    assert "are one to the database" in name_faults("duckdb", ["Id", "id"])[0]
    assert len(name_faults("sqlite", ["", "a\0"])) == 2


def test_an_output_is_shown_without_its_password() -> None:
    assert shown(DATABASE, "t") == "table t of postgresql://me@h:5432/shop"
    assert shown("out.csv", None) == "out.csv"


def job(**options: Any) -> Job:
    return job_from_options({**ASKED, **options})


def test_a_job_keeps_its_passwords_to_itself() -> None:
    made = job(source=DATABASE, query="SELECT 1", output=DATABASE, table="t")
    assert "s3cret" not in f"{made!r}{made.to_json()!r}{made.run_file_path}"
    assert isinstance(made.output, DatabaseUrl)
    assert made.output.connection_url({}) == DATABASE
    assert Job.from_json(made.to_json()) == made


def test_a_stored_job_takes_the_password_that_is_given_again() -> None:
    stored = Job.from_json(job(source="in.csv", output=DATABASE, table="t").to_json())
    made = apply_overrides(stored, {"output": DATABASE})
    assert made.target is not None
    assert made.target.url.connection_url({}) == DATABASE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": DATABASE, "output": "o.csv"}, "one of --query and --table"),
        ({"source": DATABASE, "output": "o.csv", "query": "q", "table": "t"}, "one of --query and --table"),
        ({"source": DATABASE, "query": "q"}, "name the output with -o"),
        ({"source": DATABASE, "output": "duckdb:///a", "table": "t"}, "say what to read with --query"),
        ({"source": "in.csv", "output": DATABASE}, "needs --table"),
        ({"source": "in.csv", "output": DATABASE, "table": "a..b"}, "must be a table"),
        ({"source": "in.csv", "output": DATABASE, "table": "t", "mode": "upsert"}, "go together"),
        ({"source": "in.csv", "output": DATABASE, "table": "t", "mode": "merge"}, "--mode: must be one of"),
        ({"source": "in.csv", "output": DATABASE, "table": "t", "format": "csv"}, "--format: is for files"),
        ({"source": "in.csv", "query": "q"}, "--query: is for a database as the source"),
        ({"source": "in.csv", "table": "t"}, "for a database"),
        ({"source": "in.csv", "id": "n"}, "for a database as the output"),
        ({"source": DATABASE, "query": "q", "output": "o.csv", "encoding": "latin-1"}, "for files of text"),
        ({"source": DATABASE, "query": "q", "output": "o.csv", "sheet": "1"}, "for workbooks"),
        ({"source": "in.csv", "output": DATABASE, "table": "t", "split_rows": 9}, "--split-rows: is for files"),
        ({"source": "mysql://h/d", "output": "o.csv", "query": "q"}, "not built yet"),
        ({"source": "sqlite://a.db", "output": "o.csv", "query": "q"}, "three slashes"),
    ],
)
def test_options_that_do_not_fit_a_database_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError) as refused:
        job(**options)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_file_of_a_job_files_database_is_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = {**ASKED, "source": "sqlite:///in.db", "query": "SELECT 1", "output": "duckdb:////abs.db", "table": "t"}
    text["endpoints"] = [{"model": text.pop("model")}]  # type: ignore[assignment]
    path.write_text(json.dumps(text))
    made = load_job(str(path), {})
    assert isinstance(made.source, DatabaseUrl)
    assert made.source.path == f"{tmp_path}/in.db"
    assert made.output == "duckdb:////abs.db"
    assert in_folder("sqlite:///a.db", "") == "sqlite:///a.db"


def chunks(*ids: list[Any]) -> Iterator[Chunk]:
    first = 0
    for part in ids:
        yield ObjectChunk(range(first, first + len(part)), [{"id": one} for one in part])
        first += len(part)


def test_ids_that_tell_every_row_pass_as_they_are() -> None:
    assert sum(map(len, unique_ids(chunks([1, "1", 1.0], [2, True]), "id"))) == 5


@pytest.mark.parametrize(
    ("ids", "passed", "words"),
    [
        ([["a", "b"], ["c", "a"]], 1, "rows 0 and 3 with the same"),
        ([["a", "a", "b", "b"]], 0, "rows 0 and 1 with the same; rows 2 and 3 with the same"),
        ([["a", None], ["b"]], 0, "row 1 without a value"),
    ],
)
def test_ids_that_do_not_are_refused_where_they_stand(ids: list[list[Any]], passed: int, words: str) -> None:
    watched = unique_ids(chunks(*ids), "id")
    for _ in range(passed):
        next(watched)
    with pytest.raises(OutputError, match=words):
        next(watched)


def test_a_column_that_is_not_there_cannot_be_the_id() -> None:
    with pytest.raises(OutputError, match="no column nr; there are id"):
        next(unique_ids(chunks([1]), "nr"))
