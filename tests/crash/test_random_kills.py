"""Runs, retries, exports, quotes and changed inputs, killed with SIGKILL at random moments: 1,000 kills.

The server's answer is a function of the request, so every answer in an output tells which request it is a reply to.
Each story begins in an empty folder, changes job and input between its commands, and ends with a run left alone.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.answering import AnsweringServer, Body, last_text
from tests.workplace import Workplace

from rowmill.simulator import Behaviour, Simulator

KILLS = 50  # in each part
LATENCY_S = 0.01
LONGEST_S = 0.7
PAID_TWICE = re.compile(r"at most ([\d,]+) rows may have been paid for twice")
BAD = "bad"  # a row that the server refuses


def answer(body: Body) -> str | int:
    text = last_text(body)
    return 400 if BAD in text and body["model"] != "patient" else f"{body['model']}: {text}"


class Story:
    """One folder from its first command to its last."""

    def __init__(self, chance: random.Random, workplace: Workplace, server: AnsweringServer) -> None:
        self.chance = chance
        self.workplace = workplace
        self.server = server
        self.kills = 0
        self.announced = 0
        self.kept_for: dict[str, set[str]] = {}
        self.prompts: set[str] = set()
        self.prompt = "Say {{ text }}"
        self.dedupe = chance.random() < 0.3
        self.in_flight = chance.choice([1, 4, 16])
        self.rows = [
            f"row {number}{f' {BAD}' if chance.random() < 0.05 else ''}" for number in range(chance.randint(20, 80))
        ]
        if self.dedupe:
            self.rows += chance.sample(self.rows, 10)
        self.may_have_been_sent: Counter[str] = Counter()
        self.write_input()

    def write_input(self) -> None:
        lines = "".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(self.rows))
        self.workplace.write("in.jsonl", lines)

    # --- commands

    def run_words(self) -> list[str]:
        dedupe = ["--dedupe"] if self.dedupe else []
        return [
            *("run", "in.jsonl", "-p", self.prompt, "-m", "quick", "--url", self.server.url, "-o", "out.jsonl"),
            *("--in-flight", str(self.in_flight), "--on-change", self.on_change, *dedupe),
        ]

    on_change = "rerun"

    def next_words(self) -> list[str]:
        """Changes what a user may change, and what he calls next."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.12:
            self.prompts.add(self.prompt)
            self.on_change = chance.choice(["keep", "rerun"])
            self.prompt = chance.choice(["Say {{ text }}", "Tell {{ text }}", "Cry {{ text }}"])
            if self.on_change == "keep":  # what a command before this one was to send again, and was killed, too
                self.kept_for.setdefault(self.prompt, set()).update(self.prompts)
        elif kind < 0.30:
            change = chance.randrange(3)
            if change == 0:
                chance.shuffle(self.rows)
            elif change == 1 and len(self.rows) > 12:
                del self.rows[chance.randrange(len(self.rows)) :][5:]
            else:
                self.rows[chance.randrange(len(self.rows)) : 0] = [f"new {chance.randrange(10**6)}" for _ in range(9)]
            self.write_input()
        elif kind < 0.40 and self.is_begun():
            return ["retry", "out.jsonl", "--status", "failed", "--status", "ok"][: chance.choice([2, 4, 6])]
        elif kind < 0.48 and self.is_begun():
            return ["export", "out.jsonl", "-o", "export.jsonl"]
        elif kind < 0.55 and not self.is_begun():
            return [*["quote" if word == "run" else word for word in self.run_words()][:-3], "--pilot", "10"]
        return self.run_words()

    def is_begun(self) -> bool:
        return (self.workplace.folder / "out.jsonl.rowmill").exists()

    def go(self, words: list[str], *, is_killed: bool) -> subprocess.Popen[str]:
        """One command, killed at a random moment or left alone."""
        process = self.workplace.begin(*words)
        try:
            process.wait(self.chance.random() * LONGEST_S if is_killed else 120)
        except subprocess.TimeoutExpired:
            assert is_killed, f"{words} did not end"
            process.kill()
            self.kills += 1
        out, err = process.communicate()
        assert "Traceback" not in err, err
        # 4: a retry of what was killed before its input had been read.
        allowed = (0, 2, 3, 4, -9) if words[0] == "retry" else (0, 2, 3, -9)
        assert process.returncode in allowed, (words, process.returncode, out, err)
        for found in PAID_TWICE.findall(err):
            self.announced += int(found.replace(",", ""))
        self.last_err = err
        return process

    # --- what must hold

    def is_answer(self, text: str, row: Mapping[str, Any]) -> bool:
        prompts = {self.prompt, *self.kept_for.get(self.prompt, ())}
        return row["answer"] in {f"quick: {prompt.replace('{{ text }}', text)}" for prompt in prompts}

    def check_output(self, name: str, *, whole: bool) -> None:
        """Every row once and in its place, its answer from a reply to what is asked now or what the user has kept."""
        found = self.workplace.output(name)
        if whole:
            assert [row["_row"] for row in found] == list(range(len(self.rows)))
        for row in found:
            text = row["text"]
            assert row["_status"] == ("failed" if BAD in text else "ok"), row
            assert row["_status"] == "failed" or self.is_answer(text, row), (row, self.prompt, self.kept_for)
            if whole:
                assert text == self.rows[row["_row"]], row

    def end(self) -> None:
        """The run, left alone; then nothing is left to do, and nothing lies about."""
        ended = self.go(self.run_words(), is_killed=False)
        assert ended.returncode in (0, 3), self.last_err
        self.check_output("out.jsonl", whole=True)
        before = len(self.server.asked)
        self.go(self.run_words(), is_killed=False)
        assert len(self.server.asked) == before, "a finished run has sent something"
        assert self.go(["export", "out.jsonl", "-o", "export.jsonl"], is_killed=False).returncode == 0
        self.check_output("export.jsonl", whole=True)
        names = {path.name for path in self.workplace.folder.iterdir()}
        strays = {name for name in names if name.startswith(("out.", "export.")) and "tmp" in name}
        assert not strays, strays


def paid_twice(story: Story) -> int:
    """Requests beyond one for each row and prompt, retries left out of account by the caller."""
    asked = Counter(last_text(body) for body in story.server.asked)
    return sum(number - 1 for number in asked.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(20))
def test_random_kills_lose_nothing_and_misplace_nothing(part: int) -> None:
    kills = stories = 0
    with Simulator(Behaviour()) as simulator:
        while kills < KILLS:
            chance = random.Random(f"{part} {stories}")
            stories += 1
            folder = Path(tempfile.mkdtemp(prefix="rowmill-kills-"))
            try:
                with AnsweringServer(answer, LATENCY_S) as server:
                    story = Story(chance, Workplace(folder, simulator), server)
                    for _ in range(chance.randint(8, 20)):
                        words = story.next_words()
                        story.go(words, is_killed=True)
                        if (folder / "out.jsonl").exists() and words[0] == "run" and "Finished" in story.last_err:
                            story.check_output("out.jsonl", whole=True)
                    story.end()
                    kills += story.kills
            except BaseException as error:
                error.add_note(f"part {part}, story {stories - 1}")
                raise
            finally:
                shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_paid_twice_is_within_what_was_announced(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    with Simulator(Behaviour()) as simulator, AnsweringServer(answer, LATENCY_S) as server:
        story = Story(chance, Workplace(tmp_path, simulator), server)
        story.dedupe = False
        story.rows = [f"row {number}" for number in range(150)]
        story.write_input()
        for _ in range(8):
            story.go(story.run_words(), is_killed=True)
        story.end()
        assert paid_twice(story) <= story.announced
