"""Certificates, and clients that speak TLS to a front door in their own ways, good and bad."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path

from door_sockets import API_VERSIONS_0, System, close, read_answer
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.testkit.authority import Authority

HOST = "localhost"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Certificates:
    """An authority of servers and one of clients, and what a listener SSL needs of them."""

    def __init__(self, folder: Path) -> None:
        self.servers = Authority(folder / "servers")
        self.clients = Authority(folder / "clients")
        self.server = self.servers.issue(HOST)

    def settings(self, **more: int | str) -> dict[str, int | str]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "ssl_certificate": str(self.server.certificate),
            "ssl_key": str(self.server.key),
            **more,
        }

    def mutual(self, **more: int | str) -> dict[str, int | str]:
        return self.settings(ssl_ca=str(self.clients.ca), ssl_client_auth="required", **more)

    def context(self, client: PemFiles | None = None) -> ssl.SSLContext:
        """Of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.servers.ca)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context


def is_of(principal: str, name: str) -> bool:
    """Whether it is the principal of `Certificates.clients.client(name)`. The unit is drawn for each certificate."""
    return re.fullmatch(rf"User:CN={name},OU=Testing cert \\#[^,]+,O=Acme", principal) is not None


async def connect(system: System, context: ssl.SSLContext, listener: str = "SSL") -> Streams:
    """Raises what the handshake raises."""
    return await asyncio.open_connection(
        "127.0.0.1", system.ports[listener], ssl=context, server_hostname=HOST
    )


async def asks_versions(system: System, context: ssl.SSLContext, listener: str = "SSL") -> bool:
    """Whether a new connection has an answer; False if it is refused. With TLS 1.3 a client learns only when it reads
    that the server does not accept its certificate."""
    async with asyncio.timeout(10):
        try:
            reader, writer = await connect(system, context, listener)
        except (ssl.SSLError, ConnectionError):
            return False
        try:
            writer.write(API_VERSIONS_0)
            return (await read_answer(reader))[0] == 9
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return False
        finally:
            await close(writer)


def hello(context: ssl.SSLContext) -> bytes:
    """The first flight of a client."""
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=HOST)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("a handshake needs the server")


def handshakes(system: System, outcome: str, listener: str = "SSL") -> int:
    for reading in system.metrics.read():
        if reading.name == "kafscale_frontdoor_tls_handshakes_total":
            return sum(int(value) for labels, value in reading.values if labels == (listener, outcome))  # type: ignore[arg-type]
    return 0
