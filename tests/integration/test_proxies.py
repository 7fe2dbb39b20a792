"""Runs behind a proxy, in a process of their own: what goes wrong there ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio
import json
import os
import threading

import rowmill

BODY = json.dumps({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}).encode()
listening = threading.Event()


async def answer(reader, writer):
    while head := (await reader.readuntil(b"\\r\\n\\r\\n")).lower():
        await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%b" % (len(BODY), BODY))


def proxy():
    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        os.environ["HTTP_PROXY"] = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        listening.set()
        await server.serve_forever()

    asyncio.run(serve())


threading.Thread(target=proxy, daemon=True).start()
listening.wait()
for _ in range(3):
    rows = [{"text": str(number)} for number in range(50)]
    answers = rowmill.map(rows, prompt="{{ text }}", model="m", url="http://far.invalid/v1", in_flight=20)
    assert [one["answer"] for one in answers] == ["yes"] * 50, answers
print("three runs")
"""


@pytest.mark.slow
def test_several_runs_of_one_process_go_through_a_proxy(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "three runs\n"), ran.stderr
