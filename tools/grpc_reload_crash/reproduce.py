"""Ends a gRPC server whose certificates are reloaded, by connections that send nothing. README.md has the report.

    python reproduce.py always      the callback returns a configuration for each connection: the server dies
    python reproduce.py 50          … every 50 ms, and otherwise None: the server dies, after some more seconds
    python reproduce.py never       the callback returns None: the server lives

Needs grpcio and `openssl`. Exit status 1 if the server died within 20 s.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

CONNECTIONS: Final = 200
SECONDS: Final = 20.0
_MAKE: Final = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=x"


def serve(kind: str, key: bytes, certificate: bytes, ports: Queue[int]) -> None:
    replaced_s = time.monotonic()

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=certificate)

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal replaced_s
        if kind == "never":
            return None
        if kind != "always" and time.monotonic() - replaced_s < int(kind) / 1000:
            return None
        replaced_s = time.monotonic()
        return configuration()

    async def run() -> None:
        server = grpc.aio.server()
        credentials = grpc.dynamic_ssl_server_credentials(
            configuration(),
            newer,  # type: ignore[arg-type]  # None is not in the stubs: unchanged
            require_client_authentication=True,
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        ports.put(port)
        await server.wait_for_termination()

    asyncio.run(run())


def connect_and_close(port: int) -> None:
    held = []
    for _ in range(CONNECTIONS):
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
    for one in held:
        one.close()


def main() -> int:
    context = multiprocessing.get_context("spawn")
    ports: Queue[int] = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        words = [*_MAKE.split(), "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        arguments = (sys.argv[1], key.read_bytes(), certificate.read_bytes(), ports)
    server = context.Process(target=serve, args=arguments)
    server.start()
    port = ports.get(timeout=30)
    until_s = time.monotonic() + SECONDS
    while server.is_alive() and time.monotonic() < until_s:
        connect_and_close(port)
    died = not server.is_alive()
    print(f"grpcio {grpc.__version__}: the server", f"died: {server.exitcode}" if died else "lives")
    server.kill()
    server.join()
    return int(died)


if __name__ == "__main__":
    sys.exit(main())
