"""The tests keep what CONTRIBUTING says of them: none sleeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parent
MAY_SLEEP: Mapping[str, str] = {
    "workplace.py until": "the one place that asks again and again, for another process has no event",
    "virtual.py FakeProvider.send": "virtual time: a server's latency",
    "unit/test_engine_limits.py QueueingServer.send": "virtual time: a server's latency",
    "unit/test_engine_limits.py StubbornServer._serve": "virtual time: a server's latency",
    "unit/test_engine_limits.py QuotaServer.send": "virtual time: a server's latency",
    "contract/http_servers.py pause": "a server whose reply comes in pieces: nothing tells it that one was read",
    "crash/labelling.py chain.model": "a model's latency: what is lost at a kill is what 200 ms bring",
}
WRITTEN_OUT = re.compile(r"\b(?:time|asyncio)\.sleep\((?!0\))")  # in a program that a test writes


class Sleeps(ast.NodeVisitor):
    """The functions that sleep; `sleep(0)` only lets others take their turn."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._inside: list[str] = []

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _enter

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sleep" and [ast.unparse(argument) for argument in node.args] != ["0"]:
            self.found.add(".".join(self._inside))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and WRITTEN_OUT.search(node.value):
            self.found.add(".".join(self._inside))


def sleeping(text: str) -> set[str]:
    sleeps = Sleeps()
    sleeps.visit(ast.parse(text))
    return sleeps.found


def test_no_test_sleeps() -> None:
    found = {
        f"{path.relative_to(TESTS)} {function}"
        for path in TESTS.rglob("*.py")
        for function in sleeping(path.read_text(encoding="utf-8"))
    }
    assert found == set(MAY_SLEEP)


def test_a_sleep_is_found_wherever_it_is_written() -> None:
    assert sleeping("class A:\n    async def b(self):\n        await clock.sleep(wait_s)\n") == {"A.b"}
    assert sleeping("def a():\n    def b():\n        sleep(0.1)\n") == {"a.b"}
    assert sleeping("def a():\n    run('import time; time." + "sleep(9)')\n") == {"a"}
    assert sleeping("async def a():\n    await clock.sleep(0)\n") == set()
