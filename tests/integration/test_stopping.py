"""Signals, deadlines and secrets (CASES K)."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workplace import Workplace, own_tokens, until

from rowmill.simulator import Behaviour, Simulator


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_saves_what_is_in_flight_and_none_of_it_is_sent_again(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Simulator(Behaviour(latency="0.2")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(100)
        process = workplace.start("--in-flight", "10")
        until(lambda: workplace.request_total() >= 30, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=15)
        assert process.returncode == code, err
        assert "same command again" in err
        assert "rowmill export" in err
        assert not (tmp_path / "out.jsonl").exists()
        sent = workplace.request_total()
        exported = workplace.rowmill("export", "out.jsonl", "-o", "part.jsonl")
        assert exported.code == 0
        assert len(workplace.output("part.jsonl")) == sent
        assert workplace.run("--in-flight", "50").code == 0
        assert workplace.request_total() == 100
        assert own_tokens(workplace.output())


def test_a_second_signal_stops_at_once_and_loses_nothing_committed(tmp_path: Path) -> None:
    hanging = {f"row-{n}": "hang" for n in range(50, 60)}
    with Simulator(Behaviour(latency="0.05-0.15", scripts=hanging)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(5_000)
        process = workplace.start("--in-flight", "20")
        until(lambda: committed(workplace) >= 60, process)
        process.send_signal(signal.SIGINT)
        until(lambda: committed(workplace) == workplace.request_total() - len(hanging), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=8)  # after one signal, what is in flight has 10 s
        assert process.returncode == 130
        workplace.rowmill("export", "out.jsonl", "-o", "part.jsonl")
        assert len(workplace.output("part.jsonl")) == workplace.request_total() - len(hanging)


def test_a_second_signal_stops_at_once_also_after_another_reason(tmp_path: Path) -> None:
    hanging = {f"row-{n}": "hang" for n in range(5)}
    with Simulator(Behaviour(latency="0.01", scripts=hanging)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(5_000)
        process = workplace.start("--in-flight", "20", "--max-duration-s", "0.5")
        until(lambda: workplace.request_total() > 20, process)
        until(lambda: simulator.counters()["in_flight"] == len(hanging), process)  # the others are in: it has stopped
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # two signals of one kind that come together are one
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=8)
        assert process.returncode in (4, 130)


def test_a_third_signal_ends_the_process_whatever_keeps_it(workplace: Workplace) -> None:
    workplace.write_rows(5)
    workplace.write(
        "slow.py", "import threading\n\ndef parse(text):\n    threading.Event().wait(60)\n    return text\n"
    )
    endpoint = {"model": "sim", "url": workplace.simulator.url, "parse": "slow:parse"}
    job = {"source": "in.csv", "prompt": "{{ text }}", "output": "out.jsonl", "endpoints": [endpoint]}
    workplace.write("job.yaml", json.dumps(job))
    process = workplace.begin("run", "job.yaml")
    until(lambda: workplace.request_total() >= 1, process)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    assert process.wait(5) in (130, -signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_function_of_the_users_that_never_returns_keeps_nobody_from_stopping(
    workplace: Workplace, number: signal.Signals
) -> None:
    workplace.write_rows(5)
    workplace.write("slow.py", "import threading\n\ndef parse(text):\n    threading.Event().wait(600)\n")
    endpoint = {"model": "sim", "url": workplace.simulator.url, "parse": "slow:parse", "in_flight": 5}
    job = {"source": "in.csv", "prompt": "{{ text }}", "output": "out.jsonl", "endpoints": [endpoint]}
    workplace.write("job.yaml", json.dumps(job))
    process = workplace.begin("run", "job.yaml")
    until(lambda: workplace.request_total() == 5, process)
    for _ in range(2):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    assert process.wait(10) == 128 + number
    workplace.write("slow.py", "def parse(text):\n    return text\n")
    assert workplace.rowmill("run", "job.yaml").code == 0
    assert workplace.request_total() == 5, "replies were paid for and dropped"


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.05")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(60)
        words = [sys.executable, "-m", "rowmill", *workplace.arguments("in.csv", "--in-flight", "2")]
        shell = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *words]
        process = subprocess.Popen(shell, cwd=tmp_path, env=workplace.environment, stderr=subprocess.PIPE, text=True)
        until(lambda: workplace.request_total() >= 10, process)
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert own_tokens(workplace.output())


def committed(workplace: Workplace) -> int:
    """Rows that are answered in the run file."""
    status = workplace.rowmill("status", "out.jsonl", "--json")
    return int(status.json()["counts"].get("ok", 0)) if status.code == 0 else 0  # no run file yet


def test_a_signal_does_not_wait_for_more_input(workplace: Workplace) -> None:
    process = workplace.begin(*workplace.arguments("-"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    for number in range(2_500):
        process.stdin.write(f'{{"id": {number}, "text": "[[row-{number}]]"}}\n')
    process.stdin.flush()
    until(lambda: workplace.request_total() >= 1_000, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdin.close()
    assert "run the same command again" in (process.stderr.read() if process.stderr else "")


def test_a_closed_pipe_ends_without_a_traceback(workplace: Workplace) -> None:
    workplace.write_rows(2000)
    workplace.run()
    process = subprocess.Popen(
        f"{sys.executable} -m rowmill rows out.jsonl --json | head -1",
        shell=True,
        cwd=workplace.folder,
        env=workplace.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=30)
    assert len(out.splitlines()) == 1
    assert err == ""
    assert workplace.run().code == 0


def test_the_key_is_nowhere_even_if_the_server_echoes_it(tmp_path: Path) -> None:
    key = "sk-very-secret-4711"
    scripts = {
        "row-0": f'ok text="your key is {key}"',
        "row-1": f'400 message="bad key {key}"',
        "row-2": f'500 message="key {key}"...',
    }
    with Simulator(Behaviour(key=key, scripts=scripts)) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(4)
        ended = workplace.run("--key-env", "MY_KEY", "--attempts", "2", "--backoff-s", "0.01", env={"MY_KEY": key})
        assert ended.code == 3, ended.err
        shown = workplace.rowmill("rows", "out.jsonl")
        assert key not in ended.err + ended.out + shown.out
        for path in tmp_path.iterdir():
            assert key.encode() not in path.read_bytes(), path
        assert "***" in workplace.output()[0]["answer"]


def test_piped_progress_is_a_few_plain_lines(workplace: Workplace) -> None:
    workplace.write_rows(3000)
    ended = workplace.run()
    assert len(ended.err.splitlines()) < 20
    assert ended.out == ""


def test_a_job_deadline_stops_resumable(tmp_path: Path) -> None:
    with Simulator(Behaviour(latency="0.1")) as simulator:
        workplace = Workplace(tmp_path, simulator)
        workplace.write_rows(500)
        ended = workplace.run("--max-duration-s", "1", "--in-flight", "5")
        assert ended.code == 4
        assert "max_duration_s" in ended.err
        assert workplace.run("--in-flight", "100").code == 0
        assert workplace.request_total() == 500
