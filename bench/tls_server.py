"""The simulator over TLS in a process of its own, with a certificate made for the occasion (needs `openssl`)."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rowmill.simulator.behaviour import Behaviour
from rowmill.simulator.server import Listener, new_loop

MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
    "-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1"
)


@contextmanager
def tls_server(latency: str) -> Iterator[tuple[str, str]]:
    """Yields the base URL and the certificate to trust."""
    with TemporaryDirectory() as name:
        certificate, key = Path(name, "cert.pem"), Path(name, "key.pem")
        subprocess.run([*MAKE.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
        command = [sys.executable, "-m", "bench.tls_server", str(certificate), str(key), latency]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), str(certificate)
        finally:
            process.terminate()
            process.wait()


def main(certificate: str, key: str, latency: str) -> None:
    """Serves until it is terminated."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = new_loop()
    listener = Listener(Behaviour(latency=latency), "127.0.0.1", 0, context)
    loop.run_until_complete(listener.open())
    print(f"https://127.0.0.1:{listener.port}/v1", flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
