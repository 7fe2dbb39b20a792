"""nginx with Lua as the server of all measurements: started on free ports in a folder of its own, stopped by its id.

On Debian: `apt-get install nginx-light libnginx-mod-http-lua wrk openssl`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.tls_server import MAKE

CONFIGURATION = Path(__file__).with_name("nginx.conf")
MODULES = Path("/usr/lib/nginx/modules")
START_S = 10.0


@dataclass(frozen=True)
class Neutral:
    """Where it listens and the certificate to trust."""

    plain_port: int
    tls_port: int
    ca_file: str

    def url(self, delay_ms: int, *, tls: bool = False, numbered: bool = False) -> str:
        """The base URL whose answers come after `delay_ms`, each with headers of its own where they are `numbered`."""
        origin = f"https://127.0.0.1:{self.tls_port}" if tls else f"http://127.0.0.1:{self.plain_port}"
        return f"{origin}/{'numbered' if numbered else 'after'}/{delay_ms}/v1"


@contextmanager
def neutral() -> Iterator[Neutral]:
    """Runs the server for as long as the context lasts; raises RuntimeError where it cannot."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists() or not (MODULES / "ngx_http_lua_module.so").exists():
        raise RuntimeError("nginx with Lua is missing: apt-get install nginx-light libnginx-mod-http-lua")
    with TemporaryDirectory() as name:
        folder = Path(name)
        certificate, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run([*MAKE.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
        plain, tls = _free_ports(2)
        text = CONFIGURATION.read_text()
        for word, value in (("FOLDER", folder), ("MODULES", MODULES), ("PLAIN", plain), ("TLS", tls)):
            text = text.replace(f"@{word}@", str(value))
        (folder / "nginx.conf").write_text(text)
        command = [program, "-p", name, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
        process = subprocess.Popen(command)
        try:
            _await_listening(process, plain)
            yield Neutral(plain, tls, str(certificate))
        finally:
            process.terminate()
            process.wait()


def _free_ports(number: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("nginx does not start; see its message above") from None
            time.sleep(0.02)
        else:
            return
