"""The job: what is accepted, what is refused and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowmill.errors import JobError
from rowmill.job import (
    EndpointSpec,
    Job,
    apply_overrides,
    definition,
    difference,
    fingerprint,
    job_from_options,
    load_job,
)
from rowmill.job.model import endpoint_names
from rowmill.records import Message

OPTIONS: dict[str, Any] = {"source": "reviews.csv", "prompt": "{{ text }}", "model": "vllm/m"}

SMALL = """\
source: reviews.csv
prompt: "{{ text }}"
endpoints:
  - model: vllm/m
"""


def job(**options: Any) -> Job:
    return job_from_options({**OPTIONS, **options})


def written(folder: Path, text: str, name: str = "job.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def faults(folder: Path, text: str, **overrides: Any) -> list[str]:
    with pytest.raises(JobError) as caught:
        load_job(written(folder, text), overrides)
    return [fault.removeprefix(f"{folder}/") for fault in caught.value.faults]


def refused(**options: Any) -> list[str]:
    with pytest.raises(JobError) as caught:
        job(**options)
    return list(caught.value.faults)


def test_a_job_needs_a_source_a_prompt_and_a_model() -> None:
    made = job()
    assert made.messages == (Message("user", "{{ text }}"),)
    assert [endpoint.model for endpoint in made.endpoints] == ["vllm/m"]


def test_what_is_missing_is_said_all_at_once() -> None:
    with pytest.raises(JobError) as caught:
        job_from_options({})
    text = str(caught.value)
    assert "source: missing" in text
    assert "prompt: missing" in text
    assert "endpoints: missing" in text


@pytest.mark.parametrize("source", ["b.jsonl", "b.ndjson", "b.json", "B.JSONL.gz", "b.jsonl.zst", "*.jsonl", "-"])
def test_a_source_that_may_be_a_batch_file_needs_no_prompt(source: str) -> None:
    made = job(source=source, prompt=None, output="out.jsonl")
    assert made.is_batch
    assert made.messages == ()
    assert Job.from_json(made.to_json()) == made


@pytest.mark.parametrize("source", ["a.csv", "a.tsv", "a.parquet", "a.txt"])
def test_any_other_source_needs_a_prompt(source: str) -> None:
    assert "prompt: missing" in refused(source=source, prompt=None)[0]


def test_a_batch_file_may_have_one_model_put_into_all_bodies_and_no_stream() -> None:
    params = {"model": "m", "stream": False}
    assert job(source="b.jsonl", prompt=None, params=params).params == params
    assert "model cannot be set" in refused(source="b.jsonl", params=params)[0]
    assert "messages cannot be set" in refused(source="b.jsonl", prompt=None, params={"messages": []})[0]
    assert "model must be the name" in refused(source="b.jsonl", prompt=None, params={"model": 1})[0]


def test_the_defaults_are_those_of_the_contract() -> None:
    made = job()
    assert (made.retry.attempts, made.retry.backoff_s, made.retry.max_backoff_s) == (4, 1, 60)
    assert (made.timeout_s, made.connect_timeout_s, made.row_timeout_s) == (120, 10, 900)
    assert (made.max_duration_s, made.max_outage_s) == (None, 600)
    assert (made.empty, made.meta_prefix, made.answer_prefix) == ("send", "_", "")
    assert made.endpoints[0].fixed_in_flight is None


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("reviews.csv", "reviews.out.jsonl"),
        ("in/reviews.csv.gz", "in/reviews.out.jsonl"),
        ("a.b.JSONL.zst", "a.b.out.jsonl"),
        ("odd.name", "odd.name.out.jsonl"),
    ],
)
def test_the_output_is_named_after_the_source(source: str, output: str) -> None:
    assert job(source=source).output == output


@pytest.mark.parametrize("source", ["-", "parts/*.csv"])
def test_without_one_source_file_the_output_must_be_named(source: str) -> None:
    assert "-o/--output" in refused(source=source)[0]
    assert job(source=source, output="o.jsonl").output == "o.jsonl"


def test_the_run_file_stands_beside_the_output_unless_named() -> None:
    assert job(output="o.csv").run_file_path == "o.csv.rowmill"
    assert job(output="o.csv", run_file="x").run_file_path == "x"


def test_every_fault_of_a_job_file_comes_with_its_line(tmp_path: Path) -> None:
    text = """\
source: reviews.csv
prompt: "{{ text }}"
endpoints:
  - model: vllm/m
    max_concurency: 8
    in_flight: 0
params: {temperature: 0}
retry: {attempts: 0}
time_out_s: 3
"""
    assert faults(tmp_path, text) == [
        "job.yaml:5: endpoints[0].max_concurency: unknown key; did you mean in_flight?",
        "job.yaml:6: endpoints[0].in_flight: must be `auto` or a whole number between 1 and 100,000",
        "job.yaml:8: retry.attempts: must be between 1 and 100, not 0",
        "job.yaml:9: time_out_s: unknown key; did you mean timeout_s?",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("table: x", "table: is for a database as the source or the output"),
        ("answer: {schema: {a: string}, repare: 1}", "did you mean repair?"),
        ("take: 3", "`take` belongs to an endpoint: endpoints: [{take: ...}]"),
        ("when: x", "`when` belongs to an endpoint: endpoints: [{when: ...}]"),
        ("model: m", "`model` belongs to an endpoint: endpoints: [{model: ...}]"),
        ("max_workers: 3", "did you mean in_flight? `in_flight` belongs to an endpoint: endpoints: [{in_flight: ...}]"),
        ("unit: 1K", "`unit` belongs to the price of an endpoint: endpoints: [{price: {unit: ...}}]"),
        ("attempts: 3", "`attempts` belongs to `retry`: retry: {attempts: ...}"),
        ("answer: {schema: {a: string}, limit: 3}", "`limit` belongs to the top of the job file: limit: ..."),
        ("input: x", "unknown key; did you mean source?"),
        ("query: x", "query: is for a database as the source"),
        ("temperature: 0", "`temperature` belongs to `params`: params: {temperature: ...}"),
        ("max_retries: 3", "did you mean retry.attempts?"),
        ("zzz: 3", "unknown key; known are answer"),
    ],
)
def test_a_key_that_is_not_known_here_says_what_to_do(tmp_path: Path, line: str, words: str) -> None:
    [fault] = faults(tmp_path, f"{SMALL}{line}\n")
    assert fault.startswith("job.yaml:5: ")
    assert words in fault


def test_a_job_may_have_many_endpoints(tmp_path: Path) -> None:
    made = load_job(written(tmp_path, SMALL + "  - model: vllm/n\n    take: 3\n"), {})
    assert [(endpoint.model, endpoint.take) for endpoint in made.endpoints] == [("vllm/m", None), ("vllm/n", 3)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["take: 3", "when: a == 1"], "has both take and when"),
        (["cascade: [invalid]"], "the last endpoint has a cascade"),
        (["cascade: [ok]"], "ok is none of invalid, refused, truncated, filtered, failed"),
        (["when: a =="], "not a valid expression"),
        (["take: 0"], "must be between 1 and 1,000,000,000"),
        (["parse: nothing"], "module:function"),
        (["parse: no_such_module:f"], "cannot be imported"),
        (["prompt: [{system: x}]"], "has no user message"),
        (['model: "{{ m"'], "template"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_said(tmp_path: Path, lines: list[str], words: str) -> None:
    own = [] if lines[0].startswith("model") else ["model: vllm/n"]
    text = SMALL + "  - " + "\n    ".join([*own, *lines]) + "\n"
    assert any(words in fault for fault in faults(tmp_path, text))


def test_options_of_several_models_hold_for_each_alike() -> None:
    made = job(model=["vllm/a", "vllm/b"], rpm=60.0, in_flight=3)
    assert [(one.rpm, one.in_flight) for one in made.endpoints] == [(60.0, 3)] * 2


def test_endpoints_of_one_model_are_told_apart_by_host_or_number() -> None:
    def named(*urls: str | None) -> list[str]:
        return endpoint_names([EndpointSpec(model="vllm/m", url=url) for url in urls])

    assert named("http://a:1/v1") == ["vllm/m"]
    assert named("http://a:1/v1", "http://b:2/v1") == ["vllm/m@a:1", "vllm/m@b:2"]
    assert named("http://a:1/v1", "http://a:1/v1") == ["vllm/m #1", "vllm/m #2"]


def test_an_endpoint_is_called_as_its_user_calls_it() -> None:
    made = job(endpoints=[{"model": "vllm/m", "name": "left"}, {"model": "vllm/m"}, {"model": "vllm/n"}])
    assert endpoint_names(made.endpoints) == ["left", "vllm/m", "vllm/n"]


@pytest.mark.parametrize("other", [{"name": "left"}, {"model": "left", "url": "http://h/v1"}])
def test_two_endpoints_may_not_be_called_alike(other: dict[str, str]) -> None:
    with pytest.raises(JobError, match="left"):
        job(endpoints=[{"model": "vllm/m", "name": "left"}, {"model": "vllm/n", **other}])


def test_one_more_server_of_a_model_is_no_change_of_the_version() -> None:
    one = definition(job(model="vllm/m"))
    two = definition(job(endpoints=[{"model": "vllm/m"}, {"model": "vllm/m", "url": "http://a/v1"}]))
    assert one == two


def test_endpoints_that_are_no_list_are_explained(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, "source: a.csv\nprompt: x\nendpoints:\n  model: vllm/m\n")
    assert fault == "job.yaml:3: endpoints: must be a list; put `- ` before the first key"


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    assert faults(tmp_path, SMALL + "source: b.csv\n") == ["job.yaml:5: source: stands twice (first on line 1)"]


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, 'source: "a.csv\nprompt: x\n')
    assert fault.startswith("job.yaml:")
    assert "not valid YAML" in fault


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), ("- a\n", "mapping"), ("just words\n", "mapping"), ("a: &a [*a]\n", "anchors")],
)
def test_a_file_that_is_no_job_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    assert words in faults(tmp_path, text)[0]


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "without end" in faults(tmp_path, "\n".join(levels))[0]


def test_yes_and_no_are_words_and_dates_are_text(tmp_path: Path) -> None:
    text = SMALL + "answer: {schema: {no: yes|no, on: [yes, off]}}\nparams: {stop: 2024-01-01, x: 1:30, y: true}\n"
    made = load_job(written(tmp_path, text), {})
    assert made.answer is not None
    assert made.answer.schema_ == {"no": "yes|no", "on": ["yes", "off"]}
    assert made.params == {"stop": "2024-01-01", "x": "1:30", "y": True}


def test_numbers_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    made = load_job(written(tmp_path, SMALL + "params: {a: 0x1F, b: 1e3, c: 010, d: -.5, e: '7'}\n"), {})
    assert made.params == {"a": 31, "b": 1000.0, "c": 10, "d": -0.5, "e": "7"}


def test_a_foreign_tag_is_refused(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, SMALL + "system: !!python/name:os.system x\n")
    assert fault.startswith("job.yaml:5: system: ")


def test_an_empty_value_means_the_default(tmp_path: Path) -> None:
    made = load_job(written(tmp_path, SMALL + "timeout_s: null\nretry: {attempts: }\n"), {})
    assert made.timeout_s == 120
    assert made.retry.attempts == 4


def test_text_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, SMALL + 'timeout_s: "30"\n')
    assert fault == "job.yaml:5: timeout_s: must be a number, not '30'"


def test_paths_in_a_job_file_are_relative_to_it(tmp_path: Path) -> None:
    made = load_job(written(tmp_path, SMALL + "output: out/o.csv\n"), {})
    assert made.source == str(tmp_path / "reviews.csv")
    assert made.output == str(tmp_path / "out/o.csv")


def test_options_override_the_file_and_keep_their_own_paths(tmp_path: Path) -> None:
    text = SMALL + "params: {temperature: 0, max_tokens: 5}\nretry: {attempts: 9}\n"
    made = load_job(written(tmp_path, text), {"output": "o.csv", "max_tokens": 7, "backoff_s": 2.0})
    assert made.output == "o.csv"
    assert made.params == {"temperature": 0, "max_tokens": 7}
    assert (made.retry.attempts, made.retry.backoff_s) == (9, 2.0)


def test_a_model_given_over_a_file_does_not_inherit_its_address(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL + "    url: http://localhost:1/v1\n    in_flight: 3\n")
    [endpoint] = load_job(path, {"model": ["openai/x"]}).endpoints
    assert (endpoint.model, endpoint.url, endpoint.fixed_in_flight) == ("openai/x", None, 3)


def test_an_address_given_over_a_file_keeps_its_model(tmp_path: Path) -> None:
    [endpoint] = load_job(written(tmp_path, SMALL), {"url": "http://localhost:2/v1"}).endpoints
    assert (endpoint.model, endpoint.url) == ("vllm/m", "http://localhost:2/v1")


def test_a_fault_of_an_option_names_the_option(tmp_path: Path) -> None:
    assert faults(tmp_path, SMALL, in_flight=0)[0].startswith("--in-flight: must be")
    assert refused(max_tokens=0) == ["params: max_tokens must be a whole number of at least 1"]


def test_parameters_are_json_or_a_word() -> None:
    made = job(param=["top_p=0.5", 'stop=["a"]', "reasoning_effort=low"])
    assert made.params == {"top_p": 0.5, "stop": ["a"], "reasoning_effort": "low"}
    assert refused(param=["stop=[a"]) == ["--param: the value is not valid JSON"]
    assert refused(param=["stop"]) == ["--param: must look like KEY=JSON"]


@pytest.mark.parametrize("name", ["messages", "model", "stream", "n"])
def test_parameters_that_would_break_a_run_are_refused(name: str) -> None:
    assert f"{name} cannot be set" in refused(param=[f"{name}=2"])[0]


def test_parameters_may_be_templates_and_a_bad_one_is_refused() -> None:
    assert job(param=["user={{ id }}"]).params == {"user": "{{ id }}"}
    assert job(max_tokens=None, param=["max_tokens={{ n }}"]).params == {"max_tokens": "{{ n }}"}
    assert "expected" in refused(param=["user={{ id"])[0] or "template" in refused(param=["user={{ id"])[0]


def test_a_prompt_may_be_messages(tmp_path: Path) -> None:
    text = SMALL.replace('"{{ text }}"', '[{system: s}, {user: a}, {assistant: b}, {role: user, content: "{{ t }}"}]')
    made = load_job(written(tmp_path, text), {})
    assert made.messages == tuple(
        Message(*turn) for turn in (("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "{{ t }}"))
    )


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("[{system: s}]", "has no user message"),
        ("[{user: a}, {system: s}]", "must stand first"),
        ("[{usr: a}]", "message 1 is from `usr`"),
        ("[{user: a, system: b}]", "message 1 must be one of"),
        ("[]", "must be text, or a list"),
        ("7", "must be text, or a list"),
        ("' '", "must not be empty"),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_refused(tmp_path: Path, prompt: str, words: str) -> None:
    [fault] = faults(tmp_path, SMALL.replace('"{{ text }}"', prompt))
    assert fault.startswith("job.yaml:2: prompt")
    assert words in fault


def test_two_system_messages_are_refused_but_an_option_replaces_one(tmp_path: Path) -> None:
    text = SMALL.replace('"{{ text }}"', "[{system: s}, {user: u}]")
    assert "has a system message already" in faults(tmp_path, text + "system: t\n")[0]
    assert load_job(written(tmp_path, text), {"system": "t"}).messages == (Message("system", "t"), Message("user", "u"))


def test_a_template_that_does_not_compile_is_a_fault_with_its_line(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, SMALL.replace("{{ text }}", "{{ text }"))
    assert fault.startswith("job.yaml:2: prompt: ")


def test_an_expression_that_does_not_compile_is_a_fault() -> None:
    assert refused(where="lang ==")[0].startswith("--where: not a valid expression")


def test_texts_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("\ufeffAsk {{ text }}\n", encoding="utf-8")
    assert load_job(written(tmp_path, SMALL.replace("{{ text }}", "@p.txt")), {}).messages[0].content == (
        "Ask {{ text }}\n"
    )
    assert job(prompt=f"@{tmp_path}/p.txt").messages[0].content == "Ask {{ text }}\n"
    assert job(prompt="@@home {{ text }}").messages[0].content == "@home {{ text }}"


def test_a_file_that_is_not_there_is_a_fault_with_its_path(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, SMALL.replace("{{ text }}", "@none.txt"))
    assert fault.startswith("job.yaml:2: prompt: the file ")
    assert "is not there" in fault


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"ok\n\xff")
    assert refused(prompt=f"@{tmp_path}/p.txt")[0].endswith(
        "is not UTF-8 (line 2) (a text that begins with @ is written @@)"
    )


def test_a_schema_may_be_shorthand_json_or_a_file(tmp_path: Path) -> None:
    written = {"type": "object", "properties": {"a": {"type": "string"}}}
    (tmp_path / "s.json").write_text(json.dumps(written), encoding="utf-8")

    def schema(text: str) -> object:
        answer = job(answer=text).answer
        return answer and answer.schema_

    assert schema("label: good|bad") == "label: good|bad"
    assert schema("score:number") == "score:number"
    assert schema(json.dumps(written)) == written
    assert schema(str(tmp_path / "s.json")) == written


def test_a_schema_may_be_a_pydantic_model_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "shapes_of_answers.py").write_text(
        "from pydantic import BaseModel\nclass Mood(BaseModel):\n    mood: str\n    sure: float\n", encoding="utf-8"
    )
    (tmp_path / "job.yaml").write_text(f"{SMALL}answer: {{schema: 'shapes_of_answers:Mood'}}\n", encoding="utf-8")
    answer = load_job(str(tmp_path / "job.yaml"), {}).answer
    assert answer is not None
    assert answer.compiled is not None
    assert answer.compiled.columns == (("mood", "string"), ("sure", "number"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:Mood", "no_such_module cannot be imported"),
        ("json:NoModel", "json has no NoModel"),
        ("json:JSONDecoder", "json:JSONDecoder is no pydantic model"),
    ],
)
def test_a_python_model_that_cannot_be_used_is_said_in_words(name: str, words: str) -> None:
    [fault] = refused(answer=name)
    assert fault.startswith(f"--answer: {words}")


def test_everything_wrong_with_an_answer_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    text = f"""{SMALL}answer:
  schema: {{mood: good|bad}}
  repair: 99
  fallback: {{mood: medium}}
  expect: {{temper: label}}
budget: 3
"""
    found = faults(tmp_path, text)
    assert [fault.partition(": ")[2].partition(": ")[0] for fault in found] == [
        "answer.repair",
        "answer.fallback",
        "answer.expect",
        "budget",
    ]
    assert "does not fit answer.schema: $.mood" in found[1]
    assert found[2].endswith("the answer has no field temper; it has mood")


def test_a_fault_in_a_schema_is_told_with_its_line_and_nothing_follows_from_it(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, f"{SMALL}answer:\n  schema: {{mood: strin}}\n  fallback: {{mood: x}}\n")
    assert "answer.schema: mood: unknown type 'strin'; did you mean str?" in fault or "did you mean string?" in fault


def test_statuses_that_no_fallback_may_stand_in_for_are_refused(tmp_path: Path) -> None:
    text = f"{SMALL}answer: {{schema: {{a: string}}, fallback: {{a: x}}, fallback_for: [failed]}}\n"
    [fault] = faults(tmp_path, text)
    assert "failed is none of invalid, refused, truncated, filtered" in fault


def test_an_answer_given_as_an_option_keeps_the_repair_of_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"{SMALL}answer: {{schema: {{a: string}}, repair: 2}}\n", encoding="utf-8")
    answer = load_job(str(tmp_path / "job.yaml"), {"answer": "b: number"}).answer
    assert answer is not None
    assert (answer.schema_, answer.repair) == ("b: number", 2)


def test_repair_fallback_expect_and_prices_do_not_change_the_version_of_a_job(tmp_path: Path) -> None:
    plain, rich = tmp_path / "plain.yaml", tmp_path / "rich.yaml"
    plain.write_text(f"{SMALL}answer: {{schema: {{a: string}}}}\n", encoding="utf-8")
    more = "answer: {schema: {a: string}, repair: 2, fallback: {a: x}, expect: {a: label}}\n"
    rich.write_text(f"{SMALL}{more}", encoding="utf-8")
    assert definition(load_job(str(plain), {})) == definition(load_job(str(rich), {}))


def test_a_job_with_an_answer_survives_the_run_file() -> None:
    whole = job(answer="a: yes|no", model="m", url="http://localhost:1/v1")
    assert Job.from_json(whole.to_json()) == whole


def test_a_job_file_that_cannot_be_read_is_said_in_words(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no.yaml", "is not there"), (tmp_path, "is a directory")):
        with pytest.raises(JobError, match=words):
            load_job(str(path), {})


SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "options",
    [
        {"url": f"http://me:{SECRET}@host/v1"},
        {"url": f"http://host/v1?api-key={SECRET}"},
        {"url": f"{SECRET}://host"},
        {"headers": [f"Authorization: Bearer {SECRET}"]},
        {"headers": [f"Authorization: {SECRET}"]},
        {"key_env": SECRET},
    ],
)
def test_a_key_in_a_job_is_refused_and_never_repeated(options: dict[str, Any]) -> None:
    assert SECRET not in " ".join(refused(**options))


def test_a_key_in_a_job_file_is_refused_and_never_repeated(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, f"{SMALL}    api_key: {SECRET}\n")
    assert "key_env" in fault
    assert SECRET not in fault


def test_headers_come_from_variables() -> None:
    assert job(headers=["X-Org: $ORG"]).endpoints[0].headers == {"X-Org": "$ORG"}


def test_an_address_keeps_its_query_where_it_holds_no_key() -> None:
    url = "https://host/openai?api-version=2024-10-21"
    assert job(url=url).endpoints[0].url == url


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://h:99999999", "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    assert "must be a URL" in refused(url=url)[0]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("encoding", "utf-99", "no encoding is called"),
        ("delimiter", "ab", "must be one character"),
        ("max_failure_rate", 2.0, "between 0 and 1, not 2"),
        ("timeout_s", 0.0, "between 0.001 and 2,592,000"),
        ("timeout_s", float("nan"), "must be between"),
        ("limit", 0, "between 1 and"),
        ("empty", "drop", "must be one of 'send', 'skip' or 'fail', not 'drop'"),
        ("format", "xlsx", "must be one of"),
        ("source", "mysql://h/d", "not built yet"),
        ("output", "mssql://h/x", "not built yet"),
        ("output", "-", "must be a file"),
        ("model", "{{ m", "unexpected end of template"),
        ("in_flight", "many", "must be `auto`"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(option: str, value: Any, words: str) -> None:
    [fault] = refused(**{option: value})
    assert words in fault


def test_a_named_delimiter_is_its_character() -> None:
    assert job(delimiter="tab").delimiter == "\t"


def test_a_job_comes_back_from_json_as_it_was() -> None:
    made = job(answer="a: string", param=["x=1"], headers=["A: $B"], in_flight=3, output="o.csv", system="s")
    assert Job.from_json(made.to_json()) == made


def test_a_stored_job_takes_overrides() -> None:
    stored = job(answer="a: string", url="http://h/v1", in_flight=3, temperature=0.0)
    made = apply_overrides(stored, {"max_tokens": 9, "in_flight": 5})
    assert made.params == {"temperature": 0, "max_tokens": 9}
    assert (made.endpoints[0].url, made.endpoints[0].fixed_in_flight) == ("http://h/v1", 5)
    assert made.answer == stored.answer


def test_overrides_of_a_stored_job_are_checked() -> None:
    with pytest.raises(JobError, match="--attempts"):
        apply_overrides(job(), {"attempts": 0})


def changes(new: Job, old: Job | None = None) -> list[str]:
    return difference(definition(old or job()), definition(new))


def test_the_same_job_does_not_differ() -> None:
    assert changes(job()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"in_flight": 3},
        {"timeout_s": 3.0},
        {"output": "o.csv"},
        {"limit": 3},
        {"attempts": 2},
        {"url": "http://h/v1"},
    ],
)
def test_limits_times_and_outputs_are_no_change(options: dict[str, Any]) -> None:
    assert changes(job(**options)) == []
    assert fingerprint(definition(job(**options))) == fingerprint(definition(job()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": "x {{ text }}"}, ["prompt changed"]),
        ({"system": "s"}, ["system message added"]),
        ({"temperature": 0.7}, ["temperature: not set -> 0.7"]),
        ({"model": "vllm/n"}, ["model: vllm/m -> vllm/n"]),
        ({"answer": "a: string"}, ["schema added"]),
    ],
)
def test_what_is_sent_differently_is_said(options: dict[str, Any], words: list[str]) -> None:
    assert changes(job(**options)) == words


def test_a_changed_parameter_shows_both_values() -> None:
    assert changes(job(temperature=0.7), job(temperature=0.0)) == ["temperature: 0.0 -> 0.7"]


def test_a_changed_schema_names_its_fields() -> None:
    old = {"messages": [], "models": {"m": {}}, "schema": {"a": "string", "b": "number", "d": "string"}}
    new = {**old, "schema": {"a": "string", "b": "integer", "c": "string"}}
    assert difference(old, new) == ["schema changed: field c added, field d taken away, field b changed"]


def test_an_endpoint_added_or_removed_is_no_change() -> None:
    one = {"messages": [["user", "x"]], "models": {"a": {"t": 0}}, "schema": None}
    two = {**one, "models": {"b": {"t": 1}, "a": {"t": 0}}}
    assert difference(one, two) == []
    assert difference(two, one) == []
    assert fingerprint(one, "a") == fingerprint(two, "a")


@pytest.mark.parametrize("options", [{"prompt": "y {{ text }}"}, {"temperature": 1.0}, {"answer": "a: string"}])
def test_the_fingerprint_moves_with_what_is_sent(options: dict[str, Any]) -> None:
    made = fingerprint(definition(job(**options)))
    assert made != fingerprint(definition(job()))
    assert len(made) == 16


def test_the_fingerprint_does_not_hang_on_the_models_name() -> None:
    assert fingerprint(definition(job(model="vllm/n"))) == fingerprint(definition(job()))


def test_a_job_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, "params: {a: " + "[" * 3000 + "]" * 3000 + "}\n")
    assert "nested too deeply" in fault
