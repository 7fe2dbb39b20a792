"""The Python in the documents runs as it stands there, but against the simulator; so do the examples."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from rowmill.api.options import CallOptions, MapOptions, RunOptions

if TYPE_CHECKING:
    from tests.workplace import Workplace

ROOT = Path(__file__).parents[2]
MODEL = 'model="openai/gpt-4o-mini"'
CHAIN: Any = RunnableLambda(lambda value: AIMessage(str(value)))
# What the documents take for granted.
GIVEN = {
    "chat_model": CHAIN,
    "chain": CHAIN,
    "a": CHAIN,
    "b": CHAIN,
    "choose": lambda item: "good" if item == 1 else "cheap",
    "inputs": [1, 2],
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("page", "least"), [("README.md", 2), ("docs/how-to/python.md", 7)])
def test_the_examples_of_a_page_run_from_top_to_bottom(
    page: str, least: int, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "examples" / "reviews.csv", workplace.folder)
    monkeypatch.chdir(workplace.folder)
    names: dict[str, Any] = {**GIVEN}
    found = blocks(page)
    assert len(found) >= least
    for number, block in enumerate(found):
        here = block.replace(MODEL, f'model="sim", url="{workplace.simulator.url}"')
        exec(compile(here, f"{page}, block {number}", "exec", dont_inherit=True), names)
    assert names["result"].exit_code == 0
    assert names["result"].counts["ok"] > 0


def test_the_page_names_every_option() -> None:
    text = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    names = {name for kind in (RunOptions, MapOptions, CallOptions) for name in kind.__annotations__}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_the_example_of_a_chain_calls_for_nothing_twice(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "chain.py")]
    first, again = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first.startswith("64 reviews labelled; 64 asked about now")
    assert again.startswith("64 reviews labelled; 0 asked about now")
