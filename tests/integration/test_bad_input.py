"""Ugly input and odd outputs, end to end (CASES D, F and G)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workplace import Workplace, own_tokens

from rowmill.simulator import Behaviour, Simulator


def test_bad_lines_fail_with_their_line_number_and_the_rest_runs(workplace: Workplace) -> None:
    lines = [
        b'\xef\xbb\xbf{"id": 0, "text": "[[row-0]] a\\u2028b\xe2\x80\xa8c"}',
        b"[1,2]",
        b"null",
        b'{"id": 3, "text": 123}',
        b'{"id": 4, "text": "\xff"}',
        b'{"id": 5, "text": "cut',
        b"",
        b'{"id": 6, "text": "first", "text": "[[row-6]]"}',
    ]
    workplace.write("in.jsonl", b"\n".join(lines) + b"\n")
    ended = workplace.run(source="in.jsonl")
    assert ended.code == 3
    rows = workplace.output()
    assert [row["_status"] for row in rows] == ["ok", "failed", "failed", "ok", "failed", "failed", "ok"]
    assert "line 2" in rows[1]["_error"]
    assert "line 6" in rows[5]["_error"]
    assert rows[0]["answer"] == "row-0"
    assert rows[6]["answer"] == "row-6"
    assert rows[0]["text"] == "[[row-0]] a\u2028b\u2028c"


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.txt", "in.json"])
@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_no_rows_give_a_valid_empty_output(workplace: Workplace, name: str, output: str) -> None:
    workplace.write(name, "id,text\n" if name == "in.csv" else "[]" if name == "in.json" else "")
    ended = workplace.run("-o", output, source=name)
    assert ended.code == 0, ended.err
    assert (workplace.folder / output).exists()
    if output == "out.parquet":
        assert pq.read_table(workplace.folder / output).num_rows == 0
    assert workplace.request_total() == 0


def test_a_file_of_no_bytes_gives_a_valid_empty_output(workplace: Workplace) -> None:
    workplace.write("in.csv", "")
    assert workplace.run().code == 0
    assert (workplace.folder / "out.jsonl").read_bytes() == b""


def test_braces_in_data_and_template_are_literal(workplace: Workplace) -> None:
    hostile = r"{x} {{ y }} {% raw %} \frac{a}{b} {{ ''.__class__ }} <|endoftext|> [[row-0]]"
    workplace.write("in.jsonl", json.dumps({"text": hostile}) + "\n")
    ended = workplace.run("-p", '{"k": "{{ text }}"} {text}', source="in.jsonl")
    assert ended.code == 0, ended.err
    shown = workplace.rowmill(
        "check", "in.jsonl", "-p", '{"k": "{{ text }}"} {text}', "-m", "sim", "--url", "http://x/v1"
    )
    assert json.dumps('{"k": "' + hostile + '"} {text}')[1:-1] in shown.out


def test_a_template_that_reaches_for_hidden_things_is_refused(workplace: Workplace) -> None:
    workplace.write_rows(1)
    refused = workplace.run("-p", "{{ text.__class__ }}")
    assert refused.code == 2
    assert "__class__" in refused.err


def test_a_missing_column_is_refused_naming_those_there_are(workplace: Workplace) -> None:
    workplace.write_rows(1)
    refused = workplace.run("-p", "{{ txet }}")
    assert refused.code == 2
    assert "txet" in refused.err
    assert "text" in refused.err
    assert not (workplace.folder / "out.jsonl.rowmill").exists()


@pytest.mark.parametrize("column", ["answer", "_status"])
def test_a_clash_of_columns_is_refused_and_the_prefix_offered(workplace: Workplace, column: str) -> None:
    workplace.write("in.csv", f"{column},text\nx,[[row-0]]\n")
    refused = workplace.run()
    assert refused.code == 2
    assert "--answer-prefix" in refused.err or "--meta-prefix" in refused.err
    assert workplace.request_total() == 0
    option = ["--answer-prefix", "llm_"] if column == "answer" else ["--meta-prefix", "rm_"]
    assert workplace.run(*option).code == 0
    assert workplace.output()[0][column] == "x"


def test_empty_cells_never_read_nan_or_none(workplace: Workplace) -> None:
    table = pa.table({"text": pa.array([None, "[[row-1]]"]), "score": pa.array([float("nan"), 1.5])})
    pq.write_table(table, workplace.folder / "in.parquet")
    shown = workplace.rowmill(
        "check", "in.parquet", "-p", "<{{ text }}|{{ score }}>", "-m", "s", "--url", "http://x/v1"
    )
    assert "<|>" in shown.out


def test_empty_rows_can_be_skipped(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n0,[[row-0]]\n1,\n2,  \n")
    assert workplace.run("--empty", "skip").code == 0
    assert [row["_status"] for row in workplace.output()] == ["ok", "skipped", "skipped"]


def test_odd_column_names_are_usable(workplace: Workplace) -> None:
    workplace.write("in.csv", "Review Text,1st,naïve\n[[row-0]],a,b\n")
    ended = workplace.run("-p", '{{ row["Review Text"] }} {{ row["1st"] }} {{ row["naïve"] }}')
    assert ended.code == 0, ended.err


def test_utf16_is_refused_with_the_option_named_and_read_with_it(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n0,[[row-0]] é\n".encode("utf-16"))
    refused = workplace.run()
    assert refused.code == 2
    assert "--encoding" in refused.err
    assert workplace.run("--encoding", "utf-16").code == 0
    assert workplace.output()[0]["text"] == "[[row-0]] é"


def test_cells_keep_their_text_and_integers_their_digits(workplace: Workplace) -> None:
    workplace.write("in.csv", 'id,text,zip,note\n0,[[row-0]],007,"a ""b""\nc"\n')
    assert workplace.run("-o", "out.csv").code == 0
    row = workplace.csv_output("out.csv")[0]
    assert (row["zip"], row["note"]) == ("007", 'a "b"\nc')
    workplace.write("in.jsonl", '{"text": "[[row-1]]", "big": 9223372036854775807, "bigger": 123456789012345678901}\n')
    assert workplace.run("-o", "two.jsonl", source="in.jsonl").code == 0
    assert '"big":9223372036854775807,"bigger":123456789012345678901' in (workplace.folder / "two.jsonl").read_text()


def test_unicode_is_unescaped_in_every_format(tmp_path: Path) -> None:
    with Simulator(Behaviour(answer="→ 馬 😀")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(1)
        for name in ("a.jsonl", "a.csv", "a.parquet"):
            assert workplace.run("-o", name).code == 0
        assert "→ 馬 😀" in (tmp_path / "a.jsonl").read_text(encoding="utf-8")
        assert workplace.csv_output("a.csv")[0]["answer"] == "→ 馬 😀"
        assert pq.read_table(tmp_path / "a.parquet")["answer"].to_pylist() == ["→ 馬 😀"]


def test_formulas_are_left_alone_unless_asked(tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://x")'
    with Simulator(Behaviour(answer=formula)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(1)
        workplace.run("-o", "a.csv")
        assert workplace.csv_output("a.csv")[0]["answer"] == formula
        workplace.rowmill("export", "a.csv", "-o", "b.csv", "--escape-formulas")
        assert workplace.csv_output("b.csv")[0]["answer"] == "'" + formula


def test_successes_and_one_error_make_one_parquet_schema(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-99": "400..."})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(100)
        assert workplace.run("-o", "a.parquet", "--answer", "label: a|b").code == 3
        table = pq.read_table(tmp_path / "a.parquet")
        assert table.schema.field("_error").type == pa.string()
        assert table.schema.field("_latency_s").type == pa.float64()
        assert table["label"].null_count == 1


def test_an_output_folder_that_is_missing_is_refused_before_sending(workplace: Workplace) -> None:
    workplace.write_rows(1)
    refused = workplace.run("-o", "nowhere/out.jsonl")
    assert refused.code == 2
    assert "nowhere" in refused.err
    assert workplace.request_total() == 0


def test_an_output_folder_that_is_not_writable_is_refused(workplace: Workplace) -> None:
    (workplace.folder / "locked").mkdir(mode=0o500)
    workplace.write_rows(1)
    # Root may write anywhere, until it is stripped of what makes it root.
    stripped = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    words = [*stripped, sys.executable, "-m", "rowmill", *workplace.arguments("in.csv", "-o", "locked/out.jsonl")]
    refused = subprocess.run(
        words, cwd=workplace.folder, env=workplace.environment, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 2, refused.stderr
    assert "locked" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert workplace.request_total() == 0
    assert not list((workplace.folder / "locked").iterdir())


def test_ids_are_never_paths(workplace: Workplace) -> None:
    workplace.write("in.csv", "id,text\n../../x,[[row-0]]\n")
    assert workplace.run().code == 0
    assert workplace.output()[0]["id"] == "../../x"


def test_failures_can_be_fed_back(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-2": "400, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(5)
        assert workplace.run().code == 3
        assert workplace.run("-o", "mended.jsonl", source="out.jsonl.failed.jsonl").code == 0
        assert own_tokens(workplace.output("mended.jsonl"))
        assert "_rowmill" not in workplace.output("mended.jsonl")[0]


def test_several_files_are_one_input_in_order_of_name(workplace: Workplace) -> None:
    workplace.write_rows(5, "part-b.csv", first=5)
    workplace.write_rows(5, "part-a.csv")
    assert workplace.run(source="part-*.csv").code == 0
    assert [row["id"] for row in workplace.output()] == [str(n) for n in range(10)]
    assert [row["_row"] for row in workplace.output()] == list(range(10))


def test_where_sample_and_limit_choose_rows(workplace: Workplace) -> None:
    workplace.write_rows(100)
    assert workplace.run("--where", "id | int % 10 == 3", "-o", "a.jsonl").code == 0
    assert [row["_row"] for row in workplace.output("a.jsonl")] == list(range(3, 100, 10))
    assert workplace.run("--sample", "7", "-o", "b.jsonl").code == 0
    assert len(workplace.output("b.jsonl")) == 7
    assert own_tokens(workplace.output("b.jsonl"))


def test_parquet_types_pass_through(workplace: Workplace) -> None:
    table = pa.table(
        {
            "text": ["[[row-0]]"],
            "when": pa.array([1], pa.timestamp("ns", "UTC")),
            "tags": pa.array([["a", "b"]], pa.list_(pa.string())),
            "price": pa.array([None], pa.decimal128(12, 3)),
        }
    )
    pq.write_table(table, workplace.folder / "in.parquet")
    assert workplace.run("-o", "out.parquet", source="in.parquet").code == 0
    out = pq.read_table(workplace.folder / "out.parquet")
    assert out.select(table.column_names).equals(table)


def test_a_job_file_tells_all_faults_with_their_lines(workplace: Workplace) -> None:
    workplace.write(
        "job.yaml",
        "source: in.csv\nprompt: 'Say {{ text }}'\nendpoints:\n  - model: sim\n    url: http://localhost:1/v1\n"
        "    max_concurency: 3\nretry: {attempts: 0}\ntimeout: 5\noutput: out.jsonl\n",
    )
    workplace.write_rows(1)
    refused = workplace.rowmill("run", "job.yaml")
    assert refused.code == 2
    for line, word in ((6, "max_concurency"), (7, "attempts"), (8, "timeout")):
        assert any(f"job.yaml:{line}" in text and word in text for text in refused.err.splitlines()), refused.err
    assert "in_flight" in refused.err
