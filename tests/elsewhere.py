"""Servers for files elsewhere, on this machine: an S3 that is real to its clients, and web pages that can break off."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import botocore.config
from moto.server import ThreadedMotoServer

_NUMBERS = itertools.count(1)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class ObjectStore:
    """An S3 server; `environment` is what its clients need to know."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.environment: Mapping[str, str] = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "only-for-tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id="id",
            aws_secret_access_key="only-for-tests",
            region_name="us-east-1",
            config=botocore.config.Config(retries={"max_attempts": 0}),
        )

    def new_bucket(self) -> Bucket:
        name = f"bucket-{next(_NUMBERS)}"
        self.client.create_bucket(Bucket=name)
        return Bucket(self.client, name)

    def stop(self) -> None:
        self._server.stop()


class Bucket:
    """One bucket, seen with another client than Rowmill's."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: bytes) -> str:
        self._client.put_object(Bucket=self.name, Key=key, Body=content)
        return self.url(key)

    def get(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def keys(self) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self.name)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def unfinished(self) -> list[str]:
        """Uploads that were begun and neither finished nor given up."""
        found = self._client.list_multipart_uploads(Bucket=self.name)
        return [entry["Key"] for entry in found.get("Uploads", ())]

    def close_to_all(self) -> None:
        """Takes the bucket away with all that is in it."""
        for key in self.keys():
            self._client.delete_object(Bucket=self.name, Key=key)
        self._client.delete_bucket(Bucket=self.name)


class WebPages:
    """Pages by path.  `ranges`: whether parts can be asked for; bytes from `breaks_at` on are promised and not sent."""

    def __init__(self, *, ranges: bool = True) -> None:
        self.pages: dict[str, bytes] = {}
        self.breaks_at: int | None = None
        self.ranges = ranges
        self.url = ""


@contextmanager
def serving(pages: WebPages) -> Iterator[WebPages]:
    """The pages, served on a port of their own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(pages))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    pages.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield pages
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(pages: WebPages) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, *, with_body: bool) -> None:
            content = pages.pages.get(self.path.partition("?")[0])
            if content is None:
                self.send_error(404)
                return
            start, end = 0, len(content)
            asked = _RANGE.match(self.headers.get("Range", "")) if pages.ranges else None
            if asked:
                start, end = int(asked[1]), min(int(asked[2] or end) + 1, end)
            self.send_response(206 if asked else 200)
            if pages.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
            self.send_header("Content-Length", str(end - start))
            self.end_headers()
            if with_body:
                sent = end if pages.breaks_at is None else min(end, max(pages.breaks_at, start))
                self.wfile.write(content[start:sent])
                self.close_connection = True

    return Handler
