"""Accuracy in the summary, stored replies read by another schema, and the two other dialects, end to end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator
from rowmill.simulator.script import Script, Step

GOOD = Step(text='{"mood": "good", "why": "said so"}')
BAD = Step(text='{"mood": "bad", "why": "said so"}')
ODD = Step(text='{"mood": "odd", "why": "said so"}')
SCHEMA = {"mood": "good|bad", "why": "string"}


def write_job(workplace: Workplace, labels: Sequence[str], **keys: Any) -> None:
    lines = [f"{n},[[row-{n}]],{label}" for n, label in enumerate(labels)]
    workplace.write("in.csv", "\n".join(["id,text,label", *lines]) + "\n")
    endpoint = {"model": "sim", "url": workplace.simulator.url}
    answer = {"schema": SCHEMA, "expect": {"mood": "label"}}
    job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
    workplace.write("job.yaml", json.dumps({**job, "answer": answer, **keys}))


def test_accuracy_overall_and_by_class_is_shown_and_shown_again_by_a_resume(tmp_path: Path) -> None:
    scripts = {"row-0": GOOD, "row-1": GOOD, "row-2": BAD, "row-3": ODD}
    with Simulator(Behaviour(scripts=scripts)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, ["good", "bad", "bad", "bad"])
        first = workplace.rowmill("run", "job.yaml", "--json")
        again = workplace.rowmill("run", "job.yaml", "--json")
        assert workplace.request_total() == 4
    for ended in (first, again):
        found = ended.json()["accuracy"]["mood"]
        assert (found["rows"], found["right"], found["unanswered"]) == (3, 2, 1)
        assert found["classes"]["bad"] == {"rows": 2, "right": 1, "accuracy": 0.5}
        assert found["confusion"] == {"good": {"good": 1}, "bad": {"good": 1, "bad": 1}}
        assert "accuracy of mood against label: 2 of 3 right (66.7%), 1 without an answer" in ended.err
        assert "-> good" in ended.err


def test_a_changed_expectation_is_counted_anew_without_a_request(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"*": Script((GOOD,), last_repeats=True)})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, ["good", "bad"], answer={"schema": SCHEMA})
        assert workplace.rowmill("run", "job.yaml", "--json").json()["accuracy"] is None
        write_job(workplace, ["good", "bad"])
        assert workplace.rowmill("run", "job.yaml", "--json").json()["accuracy"]["mood"]["accuracy"] == 0.5
        assert workplace.request_total() == 2


def test_a_column_that_is_expected_and_missing_is_refused_before_sending(tmp_path: Path) -> None:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, ["good"], answer={"schema": SCHEMA, "expect": {"mood": "truth"}})
        ended = workplace.rowmill("run", "job.yaml")
        assert ended.code == 2
        assert "answer.expect: there is no column truth; there are id, text, label" in ended.err
        assert workplace.request_total() == 0


def test_export_reads_stored_replies_by_another_schema_and_sends_nothing(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": GOOD, "row-1": ODD, "row-2": Step.parse("400")})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, ["good", "bad", "bad"])
        workplace.rowmill("run", "job.yaml")
        before = workplace.request_total()
        ended = workplace.rowmill("export", "out.jsonl", "-o", "new.jsonl", "--answer", "mood: good|odd, why: string")
        assert ended.code == 0, ended.err
        rows = workplace.output("new.jsonl")
        assert workplace.request_total() == before
        assert [row["_status"] for row in workplace.output()] == ["ok", "invalid", "failed"]
    assert [(row["mood"], row["why"], row["_status"]) for row in rows] == [
        ("good", "said so", "ok"),
        ("odd", "said so", "ok"),
        (None, None, "failed"),
    ]
    assert rows[1]["_error"] is None


def test_a_schema_that_no_reply_fits_is_told_row_by_row(tmp_path: Path) -> None:
    with Simulator(Behaviour(scripts={"row-0": GOOD})) as simulator:
        workplace = Workplace(tmp_path, simulator)
        write_job(workplace, ["good"])
        workplace.rowmill("run", "job.yaml")
        workplace.rowmill("export", "out.jsonl", "-o", "new.jsonl", "--answer", "mood: integer, why: string")
        [row] = workplace.output("new.jsonl")
    assert (row["_status"], row["mood"]) == ("invalid", None)
    assert row["_error"].startswith("$.mood")


@contextmanager
def server(reply: object) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """A URL that answers every POST with `reply`, and what was posted to it."""
    posted: list[Mapping[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}", posted
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


MESSAGE = {
    "content": [{"type": "tool_use", "name": "answer", "input": {"mood": "good", "why": "so"}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5},
    "model": "claude-x",
}


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Workplace]:
    with Simulator(Behaviour()) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write("in.csv", "text\nfine\n")
        yield workplace


def test_the_messages_api_answers_by_its_tool_and_is_read_again_without_a_key(bare: Workplace) -> None:
    price = {"input": 10, "cached_input": 1, "output": 100, "unit": "token"}
    with server(MESSAGE) as (url, posted):
        endpoint = {"model": "anthropic/claude-x", "url": url, "price": price, "key_env": "SOME_KEY"}
        job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
        bare.write("job.yaml", json.dumps({**job, "answer": {"schema": SCHEMA}, "params": {"max_tokens": 50}}))
        ended = bare.rowmill("run", "job.yaml", env={"SOME_KEY": "sk-secret-secret"})
        assert ended.code == 0, ended.err
        [row] = bare.output()
        assert (row["mood"], row["_input_tokens"], row["_cost_usd"]) == ("good", 100, 10 * 10 + 90 + 500)
        assert bare.rowmill("export", "out.jsonl", "-o", "new.jsonl", "--answer", "why: string").code == 0
        assert len(posted) == 1
    [again] = bare.output("new.jsonl")
    assert (again["_status"], "mood" in again) == ("invalid", False)


def test_a_server_of_its_own_kind_is_asked_and_read_as_the_job_says(bare: Workplace) -> None:
    with server({"out": [{"text": "fine too"}], "used": {"in": 3, "out": 4}}) as (url, posted):
        shape = {
            "body": {"q": "{{ prompt }}", "opts": "{{ params }}"},
            "answer": "out[0].text",
            "input_tokens": "used.in",
            "output_tokens": "used.out",
        }
        endpoint = {"model": "http/mine", "url": f"{url}/ask", "http": shape}
        job = {"source": "in.csv", "prompt": "Say {{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
        bare.write("job.yaml", json.dumps({**job, "params": {"max_tokens": 9}}))
        ended = bare.rowmill("run", "job.yaml")
        assert ended.code == 0, ended.err
        [row] = bare.output()
    assert posted == [{"q": "Say fine", "opts": {"max_tokens": 9}}]
    assert (row["answer"], row["_input_tokens"], row["_output_tokens"]) == ("fine too", 3, 4)


def test_a_path_that_is_none_is_refused_before_anything_is_sent(bare: Workplace) -> None:
    endpoint = {"model": "http/mine", "url": "http://127.0.0.1:9/ask", "http": {"answer": "out[[0"}}
    job = {"source": "in.csv", "prompt": "{{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
    bare.write("job.yaml", json.dumps(job))
    ended = bare.rowmill("run", "job.yaml")
    assert ended.code == 2
    assert "'out[[0' is not a path" in ended.err
