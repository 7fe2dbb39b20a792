"""A server of chat completions whose answer is a function of the request, so that any answer tells what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Body = Mapping[str, Any]
Answer = Callable[[Body], str | int | None]


class AnsweringServer:
    """`answer` gets a request's body and gives the text of the reply, a status to refuse with, or None for never.

    `asked` holds all bodies.
    """

    def __init__(self, answer: Answer, latency_s: float = 0.0) -> None:
        self.answer = answer
        self.latency_s = latency_s
        self.asked: list[dict[str, Any]] = []
        self.released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: AnsweringServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        owner.asked.append({**body, "path": self.path})
        if owner.latency_s:
            owner.released.wait(owner.latency_s)
        text = owner.answer(body)
        if text is None:
            owner.released.wait(60)
            self.close_connection = True
            return
        if isinstance(text, int):
            self._reply(text, {"error": {"message": "no", "code": "no"}})
            return
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        self._reply(200, {"id": "1", "model": body.get("model"), "choices": [choice], "usage": usage})

    def _reply(self, status: int, content: object) -> None:
        reply = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


def last_text(body: Body) -> str:
    """What the last message of a request says."""
    return str(body["messages"][-1]["content"])
