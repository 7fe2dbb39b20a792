"""Whatever of a job changes between two runs: an answer comes from a reply to what the job asks for now."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.answering import AnsweringServer, Body, last_text
from tests.workplace import Workplace, until

from rowmill.simulator import Behaviour, Simulator

JOB = """
source: in.csv
prompt: "{prompt}: {{{{ text }}}}"
answer: {{schema: {{label: {schema}}}, repair: 1}}
endpoints: [{{model: {model}, url: {url}}}]
output: out.jsonl
"""


def label(value: str) -> str:
    return json.dumps({"label": value})


def stop_at_once(process: subprocess.Popen[str]) -> None:
    """Two times Ctrl-C: what is in flight is dropped, what came is kept."""
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    assert process.wait(10) == 130


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Workplace]:
    with Simulator(Behaviour()) as simulator:
        yield Workplace(tmp_path, simulator)


def stop_amid_repairs(bare: Workplace, server: AnsweringServer) -> None:
    """A run over three rows, all of which were answered badly and asked for once more, without a reply to that."""
    bare.write_rows(3)
    bare.write("job.yaml", JOB.format(prompt="Old", schema="yes|no", model="old", url=server.url))
    process = bare.begin("run", "job.yaml")
    until(lambda: len(server.asked) == 6, process)
    stop_at_once(process)


def test_a_stored_reply_to_an_old_prompt_is_no_answer_to_the_new_one(bare: Workplace) -> None:
    def answer(body: Body) -> str | None:
        if body["model"] == "new":
            return label("yes")
        return label("maybe") if len(body["messages"]) == 1 else None  # the repair hangs

    with AnsweringServer(answer) as server:
        stop_amid_repairs(bare, server)
        bare.write("job.yaml", JOB.format(prompt="New", schema="yes|no|maybe", model="new", url=server.url))
        ended = bare.rowmill("run", "job.yaml")
        assert ended.code == 0, ended.err
        asked = [last_text(body) for body in server.asked[6:]]
        assert sorted(asked) == [f"New: [[row-{n}]] text number {n}" for n in range(3)]
        assert [(row["label"], row["_endpoint"], row["_model"]) for row in bare.output()] == [("yes", "new", "new")] * 3


def test_a_stored_reply_of_the_same_job_is_read_and_not_bought_again(bare: Workplace) -> None:
    hangs = [True]

    def answer(body: Body) -> str | None:
        if len(body["messages"]) == 1:
            return label("maybe")
        return None if hangs[0] else label("no")

    with AnsweringServer(answer) as server:
        stop_amid_repairs(bare, server)
        hangs[0] = False
        server.released.set()
        assert bare.rowmill("run", "job.yaml").code == 0
        assert [len(body["messages"]) for body in server.asked[6:]] == [3, 3, 3]
        assert [row["label"] for row in bare.output()] == ["no"] * 3


@pytest.mark.parametrize("key", ["answer", "reasoning", "finish", "input_tokens", "output_tokens"])
def test_another_reading_of_a_servers_own_kind_of_reply_is_a_change(bare: Workplace, key: str) -> None:
    with AnsweringServer(lambda body: "first") as server:
        bare.write_rows(2)

        def job(**more: str) -> str:
            http = {"answer": "choices[0].message.content", "body": {"messages": [{"content": "{{ prompt }}"}]}, **more}
            endpoint = {"model": "http/own", "url": server.url + "/x", "http": http}
            keys = {"source": "in.csv", "prompt": "Say {{ text }}", "endpoints": [endpoint], "output": "out.jsonl"}
            return json.dumps(keys)

        bare.write("job.yaml", job())
        first = bare.rowmill("run", "job.yaml")
        assert first.code == 0, first.err
        bare.write("job.yaml", job(**{key: "choices[0].finish_reason"}))
        refused = bare.rowmill("run", "job.yaml")
        assert refused.code == 2
        assert f"http.{key}" in refused.err
        assert "--on-change" in refused.err


def test_a_row_that_names_its_index_is_sent_anew_where_its_index_has_changed(bare: Workplace) -> None:
    with AnsweringServer(last_text) as server:
        options = ["-p", "{{ _row }} {{ text }}", "-m", "sim", "--url", server.url, "-o", "out.jsonl"]
        bare.write("in.csv", "text\na\nb\nc\n")
        assert bare.rowmill("run", "in.csv", *options).code == 0
        bare.write("in.csv", "text\na\nc\nb\n")
        assert bare.rowmill("run", "in.csv", *options).code == 0
        assert [row["answer"] for row in bare.output()] == ["0 a", "1 c", "2 b"]
        assert len(server.asked) == 5


def test_equal_rows_that_name_their_index_are_no_duplicates(bare: Workplace) -> None:
    with AnsweringServer(last_text) as server:
        bare.write("in.csv", "text\na\na\n")
        options = ["-p", "{{ _row }} {{ text }}", "-m", "sim", "--url", server.url, "-o", "out.jsonl", "--dedupe"]
        assert bare.rowmill("run", "in.csv", *options).code == 0
        assert [row["answer"] for row in bare.output()] == ["0 a", "1 a"]


@pytest.mark.parametrize(
    "routes", [("when: \"lang == 'en'\"", ""), ("take: 1", ""), ("when: \"lang == 'en'\", pin: true", "")]
)
def test_equal_rows_for_different_endpoints_are_no_duplicates(bare: Workplace, routes: tuple[str, str]) -> None:
    with AnsweringServer(lambda body: str(body["model"])) as server:
        bare.write("in.csv", "lang,text\nen,hello\nde,hello\nde,hello\n")
        endpoints = [
            f"  - {{model: {model}, url: {server.url}{', ' + route if route else ''}}}"
            for model, route in zip(("english", "german"), routes, strict=True)
        ]
        bare.write(
            "job.yaml",
            "\n".join(
                [
                    "source: in.csv",
                    'prompt: "{{ text }}"',
                    "dedupe: true",
                    "output: out.jsonl",
                    "endpoints:",
                    *endpoints,
                ]
            ),
        )
        ended = bare.rowmill("run", "job.yaml")
        assert ended.code == 0, ended.err
        assert [row["answer"] for row in bare.output()] == ["english", "german", "german"]
        assert len(server.asked) == 2


def test_empty_rows_that_were_skipped_are_sent_where_the_job_now_says_so(bare: Workplace) -> None:
    with AnsweringServer(lambda body: "said") as server:
        bare.write("in.csv", 'text\n" "\nb\n')
        options = ["-p", "{{ text }}", "-m", "sim", "--url", server.url, "-o", "out.jsonl"]
        assert bare.rowmill("run", "in.csv", *options, "--empty", "skip").code == 0
        assert [row["_status"] for row in bare.output()] == ["skipped", "ok"]
        assert bare.rowmill("run", "in.csv", *options).code == 0
        assert [row["_status"] for row in bare.output()] == ["ok", "ok"]
        assert len(server.asked) == 2
