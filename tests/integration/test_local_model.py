"""The embedded model, for real: it starts, answers by schema, and leaves the process in peace."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rowmill.core.replies.answers import compile_schema, read_answer
from rowmill.errors import FailureKind, JobError
from rowmill.io.http.pyreqwest_ import PyreqwestTransport
from rowmill.providers import local
from rowmill.providers.local import LocalModel, LocalProvider, find_weights
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Failure, Message, RawReply, Reply, Request

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("xllamacpp")

pytestmark = pytest.mark.slow

SCHEMA = compile_schema("sentiment: positive|negative")
EXAMPLES = (
    Message("system", "You label product reviews as positive or negative."),
    Message("user", "Review: I love it, it works perfectly."),
    Message("assistant", '{"sentiment": "positive"}'),
    Message("user", "Review: It broke after a day. Waste of money."),
    Message("assistant", '{"sentiment": "negative"}'),
)
REVIEWS = {
    "Superb quality, I am delighted and will buy it again.": "positive",
    "Stopped working after one week and nobody answers. Awful.": "negative",
}


def test_reviews_are_labelled_by_the_schema_with_little_work_for_the_shared_beginning() -> None:
    async def run() -> list[Reply]:
        transport = PyreqwestTransport(environment={})
        provider = await LocalProvider.open(transport, resolve("local/smollm2"), SCHEMA)
        got = []
        try:
            for review in [*REVIEWS, *REVIEWS]:
                messages = (*EXAMPLES, Message("user", f"Review: {review}"))
                raw = await provider.send(Request(messages, {"temperature": 0, "max_tokens": 16}), 60.0)
                assert isinstance(raw, RawReply), raw
                reply = provider.read(raw)
                assert isinstance(reply, Reply), reply
                got.append(reply)
        finally:
            await provider.close()
            await provider.close()
            await transport.close()
        return got

    replies = asyncio.run(run())
    labels = []
    for reply in replies:
        answer = read_answer(reply, SCHEMA)
        assert isinstance(answer, Answer), answer
        labels.append(answer.values["sentiment"])
    assert labels[:2] == list(REVIEWS.values())
    assert replies[0].model == "smollm2"
    last, cached = replies[-1].usage.input_tokens, replies[-1].usage.cached_input_tokens
    assert last is not None
    assert cached is not None
    assert cached > last / 2


@pytest.mark.parametrize("stopped", [True, False])
def test_a_process_with_the_model_ends_quietly(stopped: bool) -> None:
    script = (
        "import asyncio\n"
        "from rowmill.providers.local import LocalModel\n"
        "async def run():\n"
        "    model = await LocalModel.start('smollm2')\n"
        f"    {'await model.stop()' if stopped else 'return model'}\n"
        "model = asyncio.run(run())\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_start_that_is_cancelled_ends_the_server() -> None:
    async def run() -> None:
        starting = asyncio.create_task(LocalModel.start("smollm2"))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(run())


def test_it_stops_at_once_while_it_answers() -> None:
    async def run() -> list[RawReply | Failure]:
        transport = PyreqwestTransport(environment={})
        provider = await LocalProvider.open(transport, resolve("local/smollm2"))
        request = Request((Message("user", "Write a long story."),), {"max_tokens": 900, "ignore_eos": True})
        sending = [asyncio.create_task(provider.send(request, 60.0)) for _ in range(10)]
        quick = Request((Message("user", "Hi"),), {"max_tokens": 1})
        await asyncio.wait([asyncio.create_task(provider.send(quick, 0.5)), *sending], return_when="FIRST_COMPLETED")
        await provider.close()
        lost = await asyncio.gather(*sending)
        await transport.close()
        return lost

    lost = asyncio.run(run())
    assert {reply.kind for reply in lost if isinstance(reply, Failure)} <= {FailureKind.RESET, FailureKind.UNREACHABLE}
    assert any(isinstance(reply, Failure) for reply in lost)


def test_it_ends_with_a_process_that_is_killed() -> None:
    script = (
        "import asyncio, signal\n"
        "from rowmill.providers.local import LocalModel\n"
        "model = asyncio.run(LocalModel.start('smollm2'))\n"
        "print(model.url, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connected:
            parent.kill()
            assert connected.recv(1) == b""


def test_a_server_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not weights")
    monkeypatch.setattr(local, "find_weights", lambda name: broken)
    with pytest.raises(JobError, match="local/smollm2 cannot be started"):
        asyncio.run(LocalModel.start("smollm2"))


def test_an_unknown_embedded_model_is_refused() -> None:
    with pytest.raises(JobError, match="there is local/smollm2"):
        find_weights("gpt-5")
