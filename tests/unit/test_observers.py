"""What a user sees while a run goes on, and at its end."""

from __future__ import annotations

import io
import json
import threading

import pytest
from tests.figures import FIGURES, figures, lane, result

from rowmill.errors import StopReason
from rowmill.events import LaneDisabled, Notice, RunEnded, RunStarted
from rowmill.observers.progress import Progress
from rowmill.observers.summary import summary_lines, summary_object
from rowmill.observers.wording import duration, figure_lines, money, printable, progress_line, rate, share
from rowmill.records import Figures


class Screen(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True


class Gate(io.StringIO):
    """A stream that says when a line with some text has come."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        length = super().write(text)
        self.written.set()
        return length


def test_the_plain_line_says_how_a_run_goes() -> None:
    assert progress_line(FIGURES) == "1,234 of 10,000 rows (12 %), 45.6 rows/s, ETA 3 min 12 s, 99.1 % good"


def test_the_plain_line_says_what_a_lane_waits_for() -> None:
    waiting = figures(lanes=(lane(why="waits 30 s: 429"),))
    assert progress_line(waiting).endswith("99.1 % good, vllm/m waits 30 s: 429")


def test_the_plain_line_manages_without_a_total() -> None:
    assert progress_line(figures(total=None, eta_s=None, counts={})) == "0 rows, 45.6 rows/s"


def test_an_empty_input_is_no_division_by_zero() -> None:
    assert progress_line(figures(total=0, counts={}, eta_s=0.0)) == "0 of 0 rows, 45.6 rows/s, ETA 0.0 s"


def test_the_block_shows_tokens_cost_and_every_lane() -> None:
    lanes = (lane(waiting=3, why="throttled, 3.2 s left: HTTP 429"), lane(name="b", adapts=True))
    lines = figure_lines(figures(cost_usd=1.5, lanes=lanes))
    assert lines == [
        "45.6 rows/s · ETA 3 min 12 s · 99.1 % good",
        "tokens/s 1,800 in, 180 out · tokens 24,680 in, 2,468 out · cost 1.50 USD, about 12.16 USD in all",
        "vllm/m: in flight 7 of 20 · 46.0 requests/s · 99.0 % ok · tokens/s 900 in, 90.0 out",
        "  3 waiting for a retry · throttled, 3.2 s left: HTTP 429",
        "b: in flight 7 of 20, auto · 46.0 requests/s · 99.0 % ok · tokens/s 900 in, 90.0 out",
    ]


def test_a_lane_by_itself_does_not_repeat_the_runs_tokens() -> None:
    assert figure_lines(FIGURES)[2:] == ["vllm/m: in flight 7 of 20 · 46.0 requests/s · 99.0 % ok"]


def test_the_cost_of_a_finished_run_is_not_projected() -> None:
    assert figure_lines(figures(cost_usd=1.5, total=1234))[1].endswith("cost 1.50 USD")


def test_of_an_unknown_cost_the_known_part_is_shown() -> None:
    assert figure_lines(figures(cost_usd=None, known_usd=0.25))[1].endswith("cost unknown (at least 0.25 USD)")


def test_an_unknown_cost_is_unknown() -> None:
    assert "cost unknown" in figure_lines(FIGURES)[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0.04, "40 ms"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_words(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_shares_are_whole_only_when_they_are() -> None:
    assert [share(part) for part in (0, 0.00001, 0.5, 0.99999, 1)] == [
        "0 %",
        "0.1 %",
        "50.0 %",
        "99.9 %",
        "100 %",
    ]


def test_rates_and_money_keep_the_figures_that_matter() -> None:
    assert [rate(value) for value in (0.1234, 12.34, 12_345.6)] == ["0.12", "12.3", "12,346"]
    assert [money(value) for value in (0.0, 0.001234, 1234.5)] == ["0.00 USD", "0.001234 USD", "1,234.50 USD"]


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\rc\td\ne") == "a\ufffd[2Jb\ufffdc\td\ne"


def test_without_a_terminal_a_line_comes_now_and_then() -> None:
    stream = Gate()
    progress = Progress(stream, interval_s=0.001)
    progress.notify(RunStarted(lambda: FIGURES))
    assert stream.written.wait(timeout=30)
    progress.notify(RunEnded())
    assert set(stream.getvalue().splitlines()) == {progress_line(FIGURES)}


def test_no_line_comes_after_the_end() -> None:
    stream = io.StringIO()
    progress = Progress(stream, interval_s=3600)
    progress.notify(RunStarted(lambda: FIGURES))
    progress.notify(RunEnded())
    assert stream.getvalue() == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "rowmill-progress"]


def test_the_block_reads_the_figures_and_goes_at_the_end() -> None:
    screen = Screen()
    asked = threading.Event()

    def read() -> Figures:
        asked.set()
        return FIGURES

    progress = Progress(screen)
    progress.notify(RunStarted(read))
    progress.notify(Notice("at most 3 rows [may] have been paid for twice"))
    progress.notify(RunEnded())
    assert asked.is_set()
    shown = screen.getvalue()
    assert "1,234 of 10,000 rows (12 %)" in shown
    assert "at most 3 rows [may] have been paid for twice" in shown


def test_notices_are_printed_without_a_terminal() -> None:
    stream = io.StringIO()
    Progress(stream).notify(Notice("read this"))
    assert stream.getvalue() == "read this\n"


def test_quiet_leaves_only_what_went_wrong() -> None:
    screen = Screen()
    progress = Progress(screen, quiet=True)
    progress.notify(RunStarted(lambda: FIGURES))
    progress.notify(Notice("read this"))
    progress.notify(LaneDisabled("vllm/m", "the quota is used up"))
    progress.notify(RunEnded())
    assert screen.getvalue() == "vllm/m is out for the rest of this run: the quota is used up\n"


def test_a_stream_that_nobody_reads_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    progress = Progress(stream)
    progress.notify(RunStarted(lambda: FIGURES))
    progress.notify(Notice("unheard"))
    progress.notify(RunEnded())


def test_the_json_object_has_the_keys_of_the_contract() -> None:
    made = summary_object(result(figures=FIGURES))
    names = "rows counts requests seconds rows_per_s input_tokens output_tokens cost_usd latency_s"
    names += " retries throttles errors accuracy output failures run_file exit_code lanes"
    assert " ".join(made) == names
    assert json.loads(json.dumps(made)) == made
    assert made["cost_usd"] is None
    assert made["latency_s"] == {"p50": 0.21, "p95": 0.5, "p99": 1.25}
    rates = ("requests_per_s", "success_rate", "input_tokens_per_s", "output_tokens_per_s")
    assert [made["lanes"][0][name] for name in rates] == [46.0, 0.99, 900.0, 90.0]


def test_the_summary_of_a_good_run_names_the_output() -> None:
    lines = summary_lines(result(), "o.jsonl")
    assert lines[0] == "Finished: 4 rows in 27 s, 45.6 rows/s."
    assert "output     o.jsonl" in lines
    assert not [line for line in lines if "retry " in line]


def test_the_summary_of_a_run_with_bad_rows_says_what_to_run_next() -> None:
    counts = {"ok": 1, "failed": 1, "invalid": 2}
    lines = summary_lines(
        result(exit_code=3, failures="o.jsonl.failed.jsonl", figures=figures(counts=counts)), "o.jsonl"
    )
    assert "rows       1 ok, 2 invalid, 1 failed" in lines
    assert "failures   o.jsonl.failed.jsonl" in lines
    assert lines[-2:] == [
        "To see why:      rowmill rows o.jsonl --status failed,invalid",
        "To try again:    rowmill retry o.jsonl --status failed,invalid",
    ]


def test_a_stopped_run_says_in_two_lines_how_to_go_on_and_how_to_export() -> None:
    stopped = result(
        reason=StopReason.QUOTA, exit_code=4, message="the quota is used up", output=None, run_file="my run.x"
    )
    lines = summary_lines(stopped, "o.jsonl")
    assert lines[0] == "Stopped after 4 of 4 rows and 27 s: the quota is used up"
    assert lines[-2].startswith("To go on, run the same command again")
    assert lines[-1] == "To export what there is: rowmill export o.jsonl --run-file 'my run.x' -o PARTIAL.jsonl"


def test_a_finished_run_that_is_run_again_says_that_nothing_was_sent() -> None:
    assert "nothing was sent" in summary_lines(result(nothing_to_do=True), "o.jsonl")[0]


def test_causes_latencies_and_accuracy_are_shown() -> None:
    lines = summary_lines(result(figures=FIGURES, accuracy_lines=["accuracy of sentiment: 92.5 %"]), "o.jsonl")
    assert "latency    p50 210 ms, p95 500 ms, p99 1.2 s" in lines
    assert "retries    3 timeout, 2 server" in lines
    assert "accuracy of sentiment: 92.5 %" in lines
    assert not [line for line in lines if line.startswith("throttles")]
