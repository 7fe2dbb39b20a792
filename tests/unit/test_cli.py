"""The command line over a fake runner: what is passed on, what is printed where, which exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.figures import result

import rowmill
from rowmill.cli import main
from rowmill.cli.status import follow
from rowmill.errors import ChangedError, JobError, RunFileError, StopReason, StoreFullError
from rowmill.job import Job
from rowmill.records import Message, Result
from rowmill.runner.commands.forecast import Agreement
from rowmill.runner.output.exporting import ExportRules

ROW = {
    "row": 3,
    "status": "failed",
    "error": "HTTP 400\x1b[2J",
    "input": {"text": "a\nb"},
    "reply": None,
    "answer": None,
    "attempts": [{"kind": "bad_request", "status_code": 400, "latency_s": None}],
}
STANDING = {
    "output": "o.jsonl",
    "run_file": "o.jsonl.rowmill",
    "state": "interrupted",
    "total": 10,
    "counts": {"ok": 3, "failed": 1},
    "pending": 6,
    "requests": 5,
    "input_tokens": 50,
    "output_tokens": 5,
    "cost_usd": None,
    "updated": None,
    "seconds": 2.0,
}


@dataclass
class Report:
    rows_seen: int = 2
    columns: Sequence[str] = ("id", "text")
    first_request: str = '{"messages":[]}'
    endpoints: Sequence[str] = ("vllm/m at http://localhost:8000/v1",)
    notes: Sequence[str] = ()


@dataclass
class FakeRunner:
    """Stands where `rowmill.runner` stands and keeps what it was called with."""

    result: Result = field(default_factory=result)
    error: BaseException | None = None
    purged_on: str | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def _called(self, _name: str, **arguments: Any) -> None:
        self.calls.append((_name, arguments))
        if self.error is not None:
            raise self.error

    def run(self, job: Job, **arguments: Any) -> Result:
        self._called("run", job=job, **arguments)
        return self.result

    def retry(self, output: str, **arguments: Any) -> Result:
        self._called("retry", output=output, **arguments)
        return self.result

    def check(self, job: Job) -> Report:
        self._called("check", job=job)
        return Report()

    def status(self, output: str, run_file: str | None) -> Mapping[str, Any]:
        self._called("status", output=output, run_file=run_file)
        return STANDING

    def export(self, output: str, **arguments: Any) -> int:
        self._called("export", output=output, **arguments)
        return 1_234

    def purged(self, output: str, run_file: str | None) -> str | None:
        return self.purged_on

    def rows(self, output: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        self._called("rows", output=output, **arguments)
        yield ROW

    @property
    def last(self) -> dict[str, Any]:
        return self.calls[-1][1]


@dataclass
class Ran:
    code: int
    out: str
    err: str


class Command:
    """Runs the command line in this process."""

    def __init__(self, runner: FakeRunner, capture: pytest.CaptureFixture[str]) -> None:
        self.runner = runner
        self._capture = capture

    def __call__(self, *arguments: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        captured = self._capture.readouterr()
        return Ran(int(left.value.code or 0), captured.out, captured.err)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    runner = FakeRunner()
    module = ModuleType("rowmill.runner")
    for name in ("run", "retry", "check", "status", "export", "purged", "rows"):
        setattr(module, name, getattr(runner, name))
    module.__dict__["ExportRules"] = ExportRules
    module.__dict__["Agreement"] = Agreement
    monkeypatch.setitem(sys.modules, "rowmill.runner", module)
    monkeypatch.setattr(rowmill, "runner", module, raising=False)
    monkeypatch.chdir(tmp_path)
    return Command(runner, capsys)


RUN = ("run", "reviews.csv", "-p", "{{ text }}", "-m", "vllm/m")


def test_run_makes_the_job_and_prints_the_summary_on_stderr(command: Command) -> None:
    ran = command(*RUN, "-o", "o.jsonl")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("Finished: 4 rows")
    job = command.runner.last["job"]
    assert (job.source, job.output, job.endpoints[0].model) == ("reviews.csv", "o.jsonl", "vllm/m")
    assert command.runner.last["on_change"] is None
    assert command.runner.last["fresh"] is False


def test_every_option_reaches_the_job(command: Command) -> None:
    said = (
        "--system s --answer a:string --url http://h/v1 --key-env K --in-flight 9 --max-tokens 8 "
        "--temperature 0.5 --param top_p=1 --attempts 2 --backoff-s 0.5 --max-backoff-s 3 "
        "--timeout-s 11 --connect-timeout-s 3 "
        "--row-timeout-s 12 --max-duration-s 13 --max-outage-s 14 --max-failure-rate 0.1 -o o --format csv "
        "--run-file r --answer-prefix x_ --meta-prefix y_ --escape-formulas --limit 5 --sample 6 --seed 7 "
        "--empty skip --encoding latin-1 --delimiter ;"
    )
    assert command(*RUN, *said.split(), "--header", "A: $B", "--where", "id == '1'").code == 0
    job: Job = command.runner.last["job"]
    endpoint = job.endpoints[0]
    assert (endpoint.url, endpoint.key_env, endpoint.fixed_in_flight, endpoint.headers) == (
        "http://h/v1",
        "K",
        9,
        {"A": "$B"},
    )
    assert job.params == {"max_tokens": 8, "temperature": 0.5, "top_p": 1}
    assert (job.retry.attempts, job.retry.backoff_s, job.retry.max_backoff_s) == (2, 0.5, 3)
    assert (job.timeout_s, job.connect_timeout_s, job.row_timeout_s) == (11, 3, 12)
    assert (job.max_duration_s, job.max_outage_s, job.max_failure_rate) == (13, 14, 0.1)
    assert (job.output, job.format, job.run_file) == ("o", "csv", "r")
    assert (job.answer_prefix, job.meta_prefix, job.escape_formulas) == ("x_", "y_", True)
    assert (job.limit, job.sample, job.seed, job.where) == (5, 6, 7, "id == '1'")
    assert (job.empty, job.encoding, job.delimiter) == ("skip", "latin-1", ";")
    assert job.messages[0] == Message("system", "s")


def test_a_job_file_is_known_by_its_ending_and_options_override_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "j.yaml").write_text(
        "source: a.csv\nprompt: x\nendpoints: [{model: vllm/m}]\nparams: {max_tokens: 3}\n", encoding="utf-8"
    )
    assert command("run", "j.yaml", "--max-tokens", "5").code == 0
    assert command.runner.last["job"].params == {"max_tokens": 5}


def test_json_prints_one_object_and_nothing_else_on_stdout(command: Command) -> None:
    ran = command(*RUN, "--json")
    [line] = ran.out.splitlines()
    assert json.loads(line)["exit_code"] == 0
    assert ran.err.startswith("Finished")


def test_quiet_prints_nothing_for_a_good_run(command: Command) -> None:
    assert command(*RUN, "--quiet") == Ran(0, "", "")


def test_quiet_still_says_why_a_run_stopped(command: Command) -> None:
    command.runner.result = result(reason=StopReason.QUOTA, exit_code=4, message="the quota is used up")
    assert command(*RUN, "--quiet") == Ran(4, "", "rowmill: the quota is used up\n")


@pytest.mark.parametrize("code", [0, 3, 4, 130, 143])
def test_the_exit_code_is_the_results(command: Command, code: int) -> None:
    command.runner.result = result(exit_code=code)
    assert command(*RUN).code == code


def test_off_a_terminal_nobody_is_asked(command: Command) -> None:
    command(*RUN, "--on-change", "keep", "--fresh")
    assert command.runner.last["confirm"] is None
    assert command.runner.last["on_change"] == "keep"
    assert command.runner.last["fresh"] is True


def test_a_wrong_word_for_on_change_is_refused(command: Command) -> None:
    ran = command(*RUN, "--on-change", "maybe")
    assert (ran.code, ran.err) == (2, "rowmill: error: --on-change: must be keep or rerun, not 'maybe'\n")
    assert not command.runner.calls


@pytest.mark.parametrize(
    ("error", "code"),
    [(JobError("a", "b"), 2), (ChangedError("a"), 2), (RunFileError("a"), 2), (StoreFullError("a"), 4)],
)
def test_errors_are_words_on_stderr(command: Command, error: Exception, code: int) -> None:
    command.runner.error = error
    ran = command(*RUN)
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.splitlines()[0] == "rowmill: error: a"
    assert "Traceback" not in ran.err


def test_every_fault_of_a_job_has_its_line(command: Command) -> None:
    ran = command("run", "a.csv", "--attempts", "0")
    assert ran.code == 2
    assert [line.split(":")[2].strip() for line in ran.err.splitlines()] == [
        "prompt",
        "endpoints",
        "--attempts",
    ]


def test_what_is_unexpected_is_called_a_bug(command: Command) -> None:
    command.runner.error = ZeroDivisionError("x")
    ran = command(*RUN)
    assert ran.code == 1
    assert "this is a bug in Rowmill" in ran.err


def test_an_interrupt_outside_a_run_exits_130(command: Command) -> None:
    command.runner.error = KeyboardInterrupt()
    assert command("status", "o.jsonl").code == 130


def test_a_reader_that_went_away_is_no_error(command: Command) -> None:
    command.runner.error = BrokenPipeError()
    ran = command("rows", "o.jsonl")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "a.csv", "--nope"), ("nope",), ("rows", "o", "--limit", "x"), ()]
)
def test_wrong_usage_exits_2(command: Command, arguments: tuple[str, ...]) -> None:
    ran = command(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


def test_check_prints_the_first_request(command: Command) -> None:
    ran = command("check", *RUN[1:])
    assert ran.code == 0
    assert "columns     id, text" in ran.out
    assert '{"messages":[]}' in ran.out
    assert "nothing was sent" in ran.out


def test_retry_takes_failed_rows_and_overrides(command: Command) -> None:
    assert command("retry", "o.jsonl").code == 0
    assert command.runner.last["statuses"] == ("failed",)
    assert command.runner.last["overrides"] == {}
    command("retry", "o.jsonl", "--status", "truncated, invalid", "--max-tokens", "512", "--run-file", "r")
    assert command.runner.last["statuses"] == ("truncated", "invalid")
    assert command.runner.last["overrides"] == {"max_tokens": 512}
    assert command.runner.last["run_file"] == "r"


def test_an_unknown_status_is_refused_with_those_there_are(command: Command) -> None:
    ran = command("retry", "o.jsonl", "--status", "bad")
    assert ran.code == 2
    assert "no status is called 'bad'; there are ok, fallback" in ran.err


def test_export_says_how_many_rows_on_stderr(command: Command) -> None:
    ran = command("export", "o.jsonl", "-o", "p.parquet", "--escape-formulas", "--meta-prefix", "m_")
    assert ran == Ran(0, "", "1,234 rows written to p.parquet\n")
    assert command.runner.last == {
        "output": "o.jsonl",
        "run_file": None,
        "target": "p.parquet",
        "rules": ExportRules(escape_formulas=True, meta_prefix="m_"),
    }


def test_rows_are_blocks_to_read(command: Command) -> None:
    ran = command("rows", "o.jsonl", "--status", "failed", "--limit", "3")
    assert ran.out.splitlines() == [
        "row 3: failed",
        "  error    HTTP 400\ufffd[2J",
        "  input    text: a",
        "           b",
        "  attempt 1 kind bad_request, status_code 400",
        "",
    ]
    assert command.runner.last["statuses"] == ("failed",)
    assert command.runner.last["limit"] == 3


def test_rows_are_json_lines_when_asked_for(command: Command) -> None:
    assert json.loads(command("rows", "o.jsonl", "--json").out) == ROW


def test_status_is_text_or_json(command: Command) -> None:
    ran = command("status", "o.jsonl")
    assert "state      interrupted" in ran.out
    assert "rows       4 of 10: 3 ok, 1 failed" in ran.out
    assert json.loads(command("status", "o.jsonl", "--json").out) == STANDING


def test_watching_goes_on_until_the_run_ends() -> None:
    standings = iter([{"state": "running"}, {"state": "running"}, {"state": "finished"}])
    shown: list[Any] = []
    naps: list[float] = []
    follow(lambda: next(standings), lambda standing: shown.append(standing["state"]), True, naps.append)
    assert shown == ["running", "running", "finished"]
    assert naps == [2.0, 2.0]


def test_the_demo_lays_out_its_files_runs_and_shows_rows(command: Command, tmp_path: Path) -> None:
    record = {
        "id": "1",
        "lang": "en",
        "text": "a\nb",
        "label": "positive",
        "sentiment": "positive",
        "_row": 0,
    }
    record |= {"_status": "ok", "_latency_s": 0.25}
    folder = tmp_path / "rowmill-demo"
    folder.mkdir()
    (folder / "reviews.out.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    command.runner.result = result(output="rowmill-demo/reviews.out.jsonl", nothing_to_do=True)
    ran = command("demo")
    assert ran.code == 0
    assert (folder / "reviews.csv").is_file()
    assert command.runner.last["job"].endpoints[0].model == "local/smollm2"
    assert "a b" in ran.out
    assert "English: 1 of 1 labels right." in ran.err
    assert "rowmill run rowmill-demo/reviews.yaml -m openai/gpt-4o-mini" in ran.err


def run_alone(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(rowmill.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source, **environment},
    )


def test_help_and_import_load_nothing_heavy() -> None:
    heavy = {"pyarrow", "pydantic", "jinja2", "pyreqwest", "yaml", "xllamacpp", "sqlite3", "asyncio"}
    ran = run_alone("-c", "import sys, rowmill, rowmill.cli; print(*sys.modules)")
    assert heavy & set(ran.stdout.split()) == set()


def test_the_version_is_printed() -> None:
    ran = run_alone("-m", "rowmill", "--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("rowmill ")


def test_a_question_is_asked_on_stderr_and_anything_but_yes_is_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rowmill.cli.terminal import confirm

    for typed, meant in (("y\n", True), ("Yes\n", True), ("\n", False), ("", False), ("no\n", False)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert confirm("Send them again?") is meant
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Send them again? [y/N]" in captured.err


@pytest.mark.parametrize(
    "command", ["", "run", "check", "quote", "status", "retry", "resume", "purge", "export", "rows", "tune", "demo"]
)
def test_a_short_h_is_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "-h"])
    assert left.value.code == 0
    assert "Usage:" in capsys.readouterr().out
