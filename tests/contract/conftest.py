"""The transports under test, each over plain HTTP and TLS and on the loops that it may run on."""

from __future__ import annotations

import asyncio
import ssl
import subprocess

import pytest
import uvloop
from tests.contract.wires import Certificate, Wire

from rowmill.io.http.http1 import DirectTransport
from rowmill.io.http.pyreqwest_ import PyreqwestTransport


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    path, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext basicConstraints=critical,CA:FALSE "
        "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", path], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return Certificate(path, context)


CLIENTS = {
    "pyreqwest": (PyreqwestTransport, asyncio.new_event_loop),
    "direct": (DirectTransport, asyncio.new_event_loop),
    "direct-uvloop": (DirectTransport, uvloop.new_event_loop),
}


@pytest.fixture(params=CLIENTS)
def plain(request: pytest.FixtureRequest) -> Wire:
    """Each transport over plain HTTP."""
    maker, new_loop = CLIENTS[request.param]
    return Wire(maker, None, new_loop)


@pytest.fixture(params=[f"{name}-{over}" for name in CLIENTS for over in ("plain", "tls")])
def wire(request: pytest.FixtureRequest, certificate: Certificate) -> Wire:
    """Each transport over plain HTTP and over TLS."""
    name, _, over = request.param.rpartition("-")
    maker, new_loop = CLIENTS[name]
    return Wire(maker, certificate if over == "tls" else None, new_loop)


@pytest.fixture(params=["asyncio-plain", "asyncio-tls", "uvloop-plain", "uvloop-tls"])
def direct(request: pytest.FixtureRequest, certificate: Certificate) -> Wire:
    """The direct transport in all its ways."""
    loop, _, over = request.param.partition("-")
    new_loop = asyncio.new_event_loop if loop == "asyncio" else uvloop.new_event_loop
    return Wire(DirectTransport, certificate if over == "tls" else None, new_loop)
