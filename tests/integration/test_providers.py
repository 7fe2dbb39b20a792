"""Providers over a real connection to a tiny server on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from rowmill.core.replies.answers import compile_schema, read_answer
from rowmill.errors import FailureKind
from rowmill.io.http.pyreqwest_ import PyreqwestTransport
from rowmill.ports import Provider
from rowmill.providers.anthropic import AnthropicProvider
from rowmill.providers.credentials import Credentials
from rowmill.providers.custom_http import HttpProvider, HttpShape
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Failure, Message, RawReply, Reply, Request

SCHEMA = compile_schema("sentiment: positive|negative")
ASKED = Request([Message("system", "Label."), Message("user", "It broke. 馬")], {"max_tokens": 32})


class TinyServer:
    """Answers one request with `status` and `reply`, and keeps what it was asked."""

    def __init__(self, status: int, reply: object) -> None:
        body = json.dumps(reply).encode()
        self._reply = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        self.head = ""
        self.body: Any = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(self.head.partition("content-length:")[2].split("\r\n")[0])
        self.body = json.loads(await reader.readexactly(length))
        writer.write(self._reply)
        await writer.drain()
        writer.close()

    def ask(self, make: Callable[[PyreqwestTransport, str], Provider]) -> Reply | Failure:
        """One request through the provider that `make` gives for a transport and this server's URL."""

        async def talk() -> Reply | Failure:
            listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            port = listener.sockets[0].getsockname()[1]
            transport = PyreqwestTransport(environment={})
            provider = make(transport, f"http://127.0.0.1:{port}")
            try:
                raw = await provider.send(ASKED, 10.0)
                return provider.read(raw) if isinstance(raw, RawReply) else raw
            finally:
                await provider.close()
                await transport.close()
                listener.close()

        return asyncio.run(talk())


def anthropic(transport: PyreqwestTransport, url: str) -> Provider:
    endpoint = resolve("anthropic/claude-haiku", f"{url}/v1", key_env="ANTHROPIC_API_KEY")
    return AnthropicProvider(
        transport, endpoint, Credentials(endpoint, environment={"ANTHROPIC_API_KEY": "sk-ant-secret"}), SCHEMA
    )


def homemade(transport: PyreqwestTransport, url: str) -> Provider:
    endpoint = resolve("http/m", f"{url}/generate")
    credentials = Credentials(endpoint, headers={"x-team": "$TEAM"}, environment={"TEAM": "team-of-tests"})
    shape = HttpShape({"prompt": "{{ user }}", "n": "{{ params.max_tokens }}"}, answer="result.text")
    return HttpProvider(transport, endpoint, credentials, shape=shape)


def test_a_typed_answer_comes_through_the_messages_api() -> None:
    server = TinyServer(
        200,
        {
            "content": [{"type": "tool_use", "name": "answer", "input": {"sentiment": "negative"}}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 30, "cache_read_input_tokens": 10, "output_tokens": 5},
        },
    )
    reply = server.ask(anthropic)
    assert isinstance(reply, Reply)
    assert read_answer(reply, SCHEMA) == Answer({"sentiment": "negative"})
    assert (reply.usage.input_tokens, reply.usage.cached_input_tokens) == (40, 10)
    assert server.head.startswith("post /v1/messages http/1.1")
    assert "x-api-key: sk-ant-secret" in server.head
    assert "anthropic-version: 2023-06-01" in server.head
    assert (server.body["system"], server.body["max_tokens"]) == ("Label.", 32)


def test_an_error_of_the_messages_api_is_a_failure() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reply = TinyServer(529, error).ask(anthropic)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.THROTTLED


def test_a_server_of_its_own_kind_is_asked_in_its_own_way() -> None:
    server = TinyServer(200, {"result": {"text": "negative"}})
    reply = server.ask(homemade)
    assert isinstance(reply, Reply)
    assert reply.text == "negative"
    assert server.body == {"prompt": "It broke. 馬", "n": 32}
    assert server.head.startswith("post /generate http/1.1")
    assert "x-team: team-of-tests" in server.head
