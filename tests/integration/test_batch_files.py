"""Files made for the Batch API, run end to end: as they are, with all that holds for other rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.workplace import Workplace, kill, until

import rowmill
from rowmill import runner
from rowmill.errors import JobError
from rowmill.simulator import Behaviour, Simulator
from rowmill.simulator.shapes import vector

if TYPE_CHECKING:
    from tests.command_line import Ended

OPTIONS = ("-m", "vllm/m", "-o", "out.jsonl")


def line(number: int, url: str = "/v1/chat/completions", body: dict[str, Any] | None = None, **more: Any) -> str:
    asked = f"[[row-{number}]] text → 馬"
    if body is None:
        body = {"model": "m", "messages": [{"role": "user", "content": asked}], "max_tokens": 9}
    made = {"custom_id": f"id-{number}", "method": "POST", "url": url, "body": body, **more}
    return json.dumps(made, ensure_ascii=False)


def write(workplace: Workplace, lines: Sequence[str], name: str = "batch.jsonl") -> None:
    workplace.write(name, "\n".join(lines) + "\n")


def write_rows(workplace: Workplace, number: int) -> None:
    write(workplace, [line(n) for n in range(number)])


def run(workplace: Workplace, *more: str, source: str = "batch.jsonl", **options: Any) -> Ended:
    return workplace.rowmill("run", source, *OPTIONS, "--url", workplace.simulator.url, *more, **options)


def answer(workplace: Workplace, source: str = "batch.jsonl", **options: Any) -> rowmill.Result:
    """As `run`, in this process, which is quicker."""
    made = {"model": "vllm/m", "url": workplace.simulator.url, "output": workplace.folder / "out.jsonl", **options}
    return rowmill.run(workplace.folder / source, **made)


def export(workplace: Workplace, name: str, **options: Any) -> None:
    rules = runner.ExportRules(**options)
    runner.export(str(workplace.folder / "out.jsonl"), target=str(workplace.folder / name), rules=rules)


def texts(workplace: Workplace, name: str = "out.jsonl") -> list[tuple[str, str]]:
    return [(row["custom_id"], _text(row["response"]["body"])) for row in workplace.output(name)]


def _text(body: dict[str, Any]) -> str:
    return str(body["choices"][0]["message"]["content"])


def test_three_apis_in_one_file_are_answered_in_the_batch_apis_shape(workplace: Workplace) -> None:
    write(
        workplace,
        [
            line(0),
            line(1, "/v1/embeddings", {"model": "e", "input": "[[row-1]]"}),
            line(2, "/v1/completions", {"model": "c", "prompt": "[[row-2]]", "max_tokens": 3}),
            line(3, "/v1/responses", {"model": "r", "input": "[[row-3]]"}),
            line(4, "/v1/score", {"model": "s", "text_1": "[[row-4]]", "text_2": ["a", "b"]}),
            line(5, "/rerank", {"model": "k", "query": "[[row-5]]", "documents": ["a"]}),
        ],
    )
    ended = run(workplace)
    assert ended.code == 0, ended.err
    rows = workplace.output()
    for number, row in enumerate(rows):
        assert list(row) == ["id", "custom_id", "response", "error"]
        assert (row["custom_id"], row["error"]) == (f"id-{number}", None)
        assert (row["response"]["status_code"], row["response"]["request_id"][:4]) == (200, "sim-")
    bodies = [row["response"]["body"] for row in rows]
    assert [body["model"] for body in bodies] == ["m", "e", "c", "r", "s", "k"]
    assert _text(bodies[0]) == "row-0"
    assert bodies[1]["data"][0]["embedding"] == vector("row-10")
    assert bodies[2]["choices"][0]["text"] == "row-2"
    assert bodies[3]["output"][0]["content"][0]["text"] == "row-3"
    assert [one["score"] for one in bodies[4]["data"]] == [vector("row-40")[0], vector("row-41")[0]]
    assert bodies[5]["results"][0]["relevance_score"] == vector("row-50")[0]
    assert len({row["id"] for row in rows}) == 6
    assert not (workplace.folder / "out.jsonl.failed.jsonl").exists()


BAD = [
    line(0),
    '{"custom_id": "cut", "method": "POST", "url": "/v1/chat',
    "[1]",
    line(3, "/v1/images"),
    line(4, method="GET"),
    line(5, body={"model": "m", "stream": True, "messages": []}),
    line(6, body={"model": "m", "messages": [{"role": "user", "content": "[[row-6 fault=error status=400]]"}]}),
    line(7, body={"model": "m", "messages": [{"role": "user", "content": "[[row-7 fault=length]]"}]}),
    line(8),
]


def test_rows_that_end_badly_stand_in_the_error_file_with_their_ids_in_order(workplace: Workplace) -> None:
    write(workplace, BAD)
    ended = run(workplace)
    assert ended.code == 3
    assert [row["custom_id"] for row in workplace.output()] == ["id-0", "id-7", "id-8"]
    errors = workplace.output("out.jsonl.failed.jsonl")
    assert [row["custom_id"] for row in errors] == [None, None, "id-3", "id-4", "id-5", "id-6"]
    assert [(row["response"] is None, row["error"] is None) for row in errors] == [(True, False)] * 5 + [(False, True)]
    codes = [row["error"]["code"] for row in errors[:5]]
    assert codes == ["invalid_json_line"] * 2 + ["invalid_request"] * 3
    messages = [row["error"]["message"] for row in errors[:5]]
    assert "line 2" in messages[0]
    assert "line 3" in messages[1]
    assert "'/v1/images'" in messages[2]
    assert "only POST" in messages[3]
    assert "stream" in messages[4]
    assert errors[5]["response"]["status_code"] == 400
    assert errors[5]["response"]["body"]["error"]["message"]
    assert workplace.requests() == {"row-0": 1, "row-6": 1, "row-7": 1, "row-8": 1}


def test_in_vllms_form_one_file_has_a_line_for_every_row(workplace: Workplace) -> None:
    write(workplace, BAD)
    assert answer(workplace, format="run-batch").exit_code == 3
    rows = workplace.output()
    assert [row["custom_id"] for row in rows] == ["id-0", None, None, *(f"id-{n}" for n in range(3, 9))]
    assert [row["error"] is None for row in rows] == [True] + [False] * 6 + [True] * 2
    assert rows[6]["response"]["body"] is None


@contextmanager
def echo_server(reply: bytes) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Answers everything with `reply`, and keeps the path and the body of every request."""
    seen: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            seen.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_bodies_go_out_and_replies_come_back_exactly(workplace: Workplace) -> None:
    body = (
        '{"z":null,"model":"other","messages":[{"role":"user","content":"→ 馬 😀 <&>"}],"seed":123456789012345678901}'
    )
    workplace.write(
        "batch.jsonl", f'{{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {body}}}'
    )
    reply = (
        '{\n  "choices": [{"message": {"content": "→ 馬 \\u99ac"}, "finish_reason": "stop"}],\n'
        '  "big": 123456789012345678901234567890, "p": 0.1000000000000000055511\n}'
    )
    with echo_server(reply.encode()) as (url, seen):
        ended = workplace.rowmill("run", "batch.jsonl", "-m", "vllm/m", "--url", url)
        assert ended.code == 0, ended.err
        assert "bodies keep the models that they name (the first: other)" in ended.err
        assert seen == [("/v1/chat/completions", body.encode())]
    out = (workplace.folder / "batch.out.jsonl").read_text()
    assert out.count("\n") == 1
    assert '"content":"→ 馬 馬"' in out
    assert '"big":123456789012345678901234567890,"p":0.1000000000000000055511' in out


def test_a_finished_run_sends_nothing_and_a_longer_file_only_what_is_new(workplace: Workplace) -> None:
    for number in (5, 5, 7):
        write_rows(workplace, number)
        assert answer(workplace).exit_code == 0
        assert workplace.request_total() == number
    assert set(workplace.requests().values()) == {1}
    assert texts(workplace) == [(f"id-{n}", f"row-{n}") for n in range(7)]


def test_rows_are_known_again_by_their_bodies_and_ids_are_refreshed(workplace: Workplace) -> None:
    write_rows(workplace, 4)
    answer(workplace)
    write(workplace, [line(n).replace("id-", "new-") for n in (3, 1, 0, 2)])
    answer(workplace)
    assert texts(workplace) == [(f"new-{n}", f"row-{n}") for n in (3, 1, 0, 2)]
    assert workplace.request_total() == 4


def test_the_same_body_for_another_api_is_another_row(workplace: Workplace) -> None:
    body = {"model": "m", "input": "[[row-0]]"}
    for url in ("/v1/embeddings", "/v1/responses"):
        write(workplace, [line(0, url, body)])
        answer(workplace)
    assert workplace.output()[0]["response"]["body"]["object"] == "response"


def test_equal_ids_have_each_their_own_line(workplace: Workplace) -> None:
    write(workplace, [line(n, custom_id="same") for n in range(3)])
    answer(workplace)
    assert texts(workplace) == [("same", "row-0"), ("same", "row-1"), ("same", "row-2")]


def test_equal_bodies_are_sent_once_with_dedupe_and_answer_every_id(workplace: Workplace) -> None:
    write(workplace, [line(n % 2, custom_id=f"c-{n}") for n in range(5)])
    assert answer(workplace, dedupe=True).exit_code == 0
    assert texts(workplace) == [(f"c-{n}", f"row-{n % 2}") for n in range(5)]
    assert workplace.request_total() == 2


def test_faults_are_retried_and_throttling_is_waited_out(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "503, ok", "row-2": "429 retry-after=0, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 4)
        assert answer(workplace, backoff_s=0.01).exit_code == 0
        assert workplace.requests() == {"row-0": 1, "row-1": 2, "row-2": 2, "row-3": 1}


def test_a_retry_mends_the_error_file_and_a_higher_limit_goes_over_the_bodies(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "400, ok", "row-2": "length, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 4)
        assert answer(workplace).exit_code == 3
        assert len(workplace.output("out.jsonl.failed.jsonl")) == 1
        again = workplace.rowmill("retry", "out.jsonl", "--status", "failed,truncated", "--max-tokens", "2")
        assert again.code == 0, again.err
        assert not (tmp_path / "out.jsonl.failed.jsonl").exists()
        assert texts(workplace) == [(f"id-{n}", f"row-{n}") for n in range(4)]
        tokens = [row["response"]["body"]["usage"]["completion_tokens"] for row in workplace.output()]
        assert tokens == [8, 2, 2, 8]
        sent = workplace.request_total()
        answer(workplace)
        assert workplace.request_total() == sent


@pytest.mark.slow
def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.02")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 400)
        process = workplace.begin("run", "batch.jsonl", *OPTIONS, "--url", simulator.url, "--in-flight", "8")
        until(lambda: workplace.request_total() > 150, process)
        kill(process)
        assert not (tmp_path / "out.jsonl").exists()
        sent_before = workplace.request_total()
        # While rows are pending, those that have ended can be had.
        exported = workplace.rowmill("export", "out.jsonl", "-o", "part.jsonl")
        assert exported.code == 0, exported.err
        part = texts(workplace, "part.jsonl")
        assert 0 < len(part) <= sent_before
        assert answer(workplace, in_flight=64).exit_code == 0
        assert texts(workplace) == [(f"id-{n}", f"row-{n}") for n in range(400)]
        assert set(part) <= set(texts(workplace))
        assert workplace.request_total() < 400 + 8 + 150


def test_results_are_exported_as_a_table_in_every_format(workplace: Workplace) -> None:
    write(workplace, [line(0), line(1, "/v1/embeddings", {"input": "[[row-1]]"}), "null"])
    assert answer(workplace).exit_code == 3
    export(workplace, "t.parquet")
    export(workplace, "t.csv")
    export(workplace, "t.jsonl", format="jsonl")
    rows = pq.read_table(workplace.folder / "t.parquet").to_pylist()
    assert [row["custom_id"] for row in rows] == ["id-0", "id-1", None]
    assert [row["_status"] for row in rows] == ["ok", "ok", "failed"]
    assert rows[0]["answer"] == "row-0"
    assert json.loads(rows[1]["answer"]) == vector("row-10")
    assert json.loads(rows[0]["body"])["max_tokens"] == 9
    assert workplace.csv_output("t.csv")[0]["answer"] == "row-0"
    assert workplace.output("t.jsonl")[0]["answer"] == "row-0"


def test_stored_replies_can_be_read_by_a_schema(tmp_path: Path) -> None:
    with Simulator(Behaviour(answer='{"label": "{token}"}')) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 2)
        answer(workplace)
    export(workplace, "t.jsonl", answer="label: string")
    assert [row["label"] for row in workplace.output("t.jsonl")] == ["row-0", "row-1"]
    with pytest.raises(JobError, match="has no columns for it"):
        export(workplace, "u.jsonl", answer="a: string", format="batch")


def test_a_run_may_write_a_table_at_once(workplace: Workplace) -> None:
    write(workplace, BAD)
    assert answer(workplace, output=workplace.folder / "out.csv").exit_code == 3
    assert workplace.csv_output("out.csv")[0]["answer"] == "row-0"
    failed = workplace.output("out.csv.failed.jsonl")
    assert [row.get("custom_id") for row in failed] == [None, None, "id-3", "id-4", "id-5", "id-6", "id-7"]


def test_failures_beside_a_table_are_a_batch_file_again(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-1": "400, ok"})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 3)
        assert answer(workplace, output=tmp_path / "out.csv").exit_code == 3
        assert answer(workplace, source="out.csv.failed.jsonl").exit_code == 0
        assert texts(workplace) == [("id-1", "row-1")]


def test_standard_input_is_read_and_gone_on_with(workplace: Workplace) -> None:
    text = "\n".join([line(0), line(1)])
    assert run(workplace, source="-", stdin=text).code == 0
    assert texts(workplace) == [("id-0", "row-0"), ("id-1", "row-1")]


def test_packed_files_and_globs_are_batch_files_too(workplace: Workplace) -> None:
    import gzip

    workplace.write("a.jsonl.gz", gzip.compress(line(0).encode()))
    workplace.write("b.jsonl.gz", gzip.compress(line(1).encode()))
    assert answer(workplace, source="*.jsonl.gz").exit_code == 0
    assert texts(workplace) == [("id-0", "row-0"), ("id-1", "row-1")]


def test_an_empty_file_gives_an_empty_output(workplace: Workplace) -> None:
    workplace.write("batch.jsonl", "")
    assert answer(workplace).exit_code == 0
    assert (workplace.folder / "out.jsonl").read_bytes() == b""


def test_rows_are_chosen_by_what_their_bodies_say(workplace: Workplace) -> None:
    write_rows(workplace, 6)
    answer(workplace, where="custom_id in ['id-2', 'id-4'] and body.max_tokens == 9", limit=1)
    assert texts(workplace) == [("id-2", "row-2")]


@pytest.mark.parametrize("content", ['{"text": "x"}', '{"custom_id": "a", "body": {}}', "[1]", "not json"])
def test_what_is_no_batch_file_needs_a_prompt(workplace: Workplace, content: str) -> None:
    workplace.write("in.jsonl", content + "\n")
    with pytest.raises(JobError, match=r"prompt: missing.*only a batch file needs none"):
        answer(workplace, source="in.jsonl")
    assert not (workplace.folder / "out.jsonl.rowmill").exists()


def test_with_a_prompt_the_lines_are_rows_like_others(workplace: Workplace) -> None:
    write_rows(workplace, 1)
    answer(workplace, prompt="{{ custom_id }} {{ body.messages[0].content }}")
    assert workplace.output()[0]["answer"] == "row-0"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"answer": "a: string"}, "answer: there is no prompt"),
        ({"system": "x"}, "system: there is no prompt"),
        ({"empty": "skip"}, "empty: there is no prompt"),
        ({"model": "anthropic/claude"}, "speaks a dialect of its own"),
        ({"model": "http/x"}, "speaks a dialect of its own"),
    ],
)
def test_what_cannot_go_with_bodies_is_refused_before_sending(
    workplace: Workplace, options: dict[str, Any], words: str
) -> None:
    write_rows(workplace, 1)
    with pytest.raises(JobError, match=words):
        answer(workplace, **options)
    assert workplace.request_total() == 0


def test_the_forms_of_results_are_for_batch_files_only(workplace: Workplace) -> None:
    workplace.write_rows(1)
    with pytest.raises(JobError, match="--format batch is for the results of batch files"):
        answer(workplace, source="in.csv", prompt="{{ text }}", format="batch")


def test_a_model_that_the_server_has_not_stops_the_run_and_one_parameter_mends_it(tmp_path: Path) -> None:
    with Simulator(Behaviour(models=("mine",))) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_rows(workplace, 100)
        stopped = answer(workplace)
        assert stopped.exit_code == 4
        assert "--param model=NAME" in stopped.message
        assert workplace.request_total() < 60
        assert answer(workplace, params={"model": "mine"}).exit_code == 0
        assert {row["response"]["body"]["model"] for row in workplace.output()} == {"mine"}


def test_one_body_with_a_wrong_model_fails_alone(tmp_path: Path) -> None:
    with Simulator(Behaviour(models=("m",))) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write(
            workplace,
            [line(0), line(1, body={"model": "typo", "messages": [{"role": "user", "content": "x"}]}), line(2)],
        )
        assert answer(workplace, in_flight=1).exit_code == 3
        assert [row["custom_id"] for row in workplace.output()] == ["id-0", "id-2"]


PRICED = """
source: batch.jsonl
endpoints:
  - {{model: vllm/m, url: "{url}", price: {{input: 0, output: 1, unit: 1K}}, in_flight: 4}}
output: out.jsonl
budget_usd: {budget}
"""


def test_a_budget_holds_by_the_limits_that_bodies_state(workplace: Workplace) -> None:
    unlimited = {"model": "m", "messages": [{"role": "user", "content": "[[row-9]]"}]}
    write(workplace, [*(line(n) for n in range(9)), line(9, body=unlimited)])
    workplace.write("job.yaml", PRICED.format(url=workplace.simulator.url, budget=0.05))
    stopped = workplace.rowmill("run", "job.yaml", "--json")
    assert stopped.code == 4  # 9 tokens are reserved a row, 8 used: 0.05 USD is enough for six rows at most
    assert workplace.request_total() <= 6
    assert stopped.json()["cost_usd"] <= 0.05
    ended = workplace.rowmill("run", "job.yaml", "--budget-usd", "1", "--json")
    assert ended.code == 3
    assert ended.json()["cost_usd"] == pytest.approx(0.072)
    [failed] = workplace.output("out.jsonl.failed.jsonl")
    assert failed["custom_id"] == "id-9"
    assert "--max-tokens" in failed["error"]["message"]


def test_an_image_that_nothing_bounds_is_refused_by_name_and_never_sent(workplace: Workplace) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.org/[[row-1]].png"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}], "max_tokens": 8}
    write(workplace, [line(0), line(1, body=body), line(2)])
    workplace.write("job.yaml", PRICED.format(url=workplace.simulator.url, budget=1))
    assert workplace.rowmill("run", "job.yaml").code == 3
    assert workplace.request_total() == 2
    [failed] = workplace.output("out.jsonl.failed.jsonl")
    assert "holds an image" in failed["error"]["message"]
    assert "image_tokens" in failed["error"]["message"]


def test_check_shows_the_first_body_and_a_quote_estimates_all(workplace: Workplace) -> None:
    write(workplace, [line(0, "/v1/files"), *(line(n) for n in range(1, 20))])
    workplace.write("job.yaml", PRICED.format(url=workplace.simulator.url, budget=5))
    shown = workplace.rowmill("check", "job.yaml")
    assert shown.code == 0, shown.err
    assert "this row will fail: row 0: url is '/v1/files'" in shown.out
    assert '"content": "[[row-1]] text → 馬"' in shown.out
    quoted = workplace.rowmill("quote", "job.yaml", "--json")
    assert quoted.code == 0, quoted.err
    assert quoted.json()["rows"] == 20
    assert workplace.rowmill("run", "job.yaml").code == 3
    assert set(workplace.requests().values()) == {1}


def test_a_result_in_python_has_the_rows_as_a_table(workplace: Workplace) -> None:
    write_rows(workplace, 3)
    result = answer(workplace, output=None)
    assert [row["answer"] for row in result.rows()] == ["row-0", "row-1", "row-2"]
    assert texts(workplace, "batch.out.jsonl")[2] == ("id-2", "row-2")
