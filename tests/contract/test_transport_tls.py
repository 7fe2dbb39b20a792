"""Whom every transport trusts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.http_servers import replies
from tests.contract.wires import HEADERS, OK, Certificate, Wire, one

from rowmill.errors import FailureKind, JobError
from rowmill.records import Failure, RawReply


def test_a_certificate_that_nobody_vouches_for_is_refused_and_the_option_named(
    plain: Wire, certificate: Certificate
) -> None:
    found = one(replace(plain, certificate=certificate), replies(OK), ca_file=None)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TLS
    assert "--ca-file" in found.message


def test_a_certificate_in_the_ca_file_is_trusted(plain: Wire, certificate: Certificate) -> None:
    assert isinstance(
        one(replace(plain, certificate=certificate), replies(OK), ca_file=str(certificate.path)), RawReply
    )


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_that_the_environment_names_is_trusted(
    plain: Wire, certificate: Certificate, variable: str
) -> None:
    environment = {variable: str(certificate.path)}
    assert isinstance(
        one(replace(plain, certificate=certificate), replies(OK), ca_file=None, environment=environment), RawReply
    )


def test_a_server_without_tls_is_a_fault_of_tls(plain: Wire) -> None:
    async def run() -> RawReply | Failure:
        transport = plain.transport()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        found = await transport.send(f"https://127.0.0.1:{port}/", HEADERS, b"{}", 5.0)
        await transport.close()
        listener.close()
        return found

    found = plain.run(run())
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TLS


def test_a_bad_ca_file_is_refused_before_anything_is_sent(plain: Wire, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="--ca-file"):
        plain.transport(ca_file=str(tmp_path / "missing.pem"))
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(JobError, match="no certificate"):
        plain.transport(ca_file=str(tmp_path / "empty.pem"))
