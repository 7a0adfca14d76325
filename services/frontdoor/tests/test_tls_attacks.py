"""What a client may try with TLS itself, beyond old versions and weak suites."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from door_sockets import System, on_uvloop, running
from kafscale.frontdoor.listeners.tls_contexts import open_all
from kafscale.frontdoor.settings import FrontdoorSettings
from tls_clients import HOST, Certificates, asks_versions


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@on_uvloop
async def test_a_client_cannot_renegotiate(certificates: Certificates) -> None:
    """OpenSSL 3 refuses it unless it is allowed, older versions allow it unless it is refused."""
    (listener,) = open_all(FrontdoorSettings(**certificates.settings()).securities().values()).values()
    assert listener.context.options & ssl.OP_NO_RENEGOTIATION
    assert listener.context.options & ssl.OP_NO_COMPRESSION
    async with running(**certificates.settings()) as system:
        said = await openssl(system, certificates, b"R\n", "-tls1_2")
        assert "RENEGOTIATING" in said, "the client has tried it"
        assert "no renegotiation" in said
        assert await asks_versions(system, certificates.context())


async def openssl(system: System, certificates: Certificates, typed: bytes, *options: str) -> str:
    """What `openssl s_client` says until it ends. `R` renegotiates."""
    address = f"127.0.0.1:{system.port}"
    command = ["s_client", "-connect", address, "-servername", HOST, "-CAfile", str(certificates.servers.ca)]
    client = await asyncio.create_subprocess_exec(
        "openssl",
        *command,
        "-brief",
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        said, _ = await client.communicate(typed)
    return said.decode()
