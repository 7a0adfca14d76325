"""A renewed certificate comes into use without a restart, and a broken one does not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from kafscale.client.security import OPEN
from kafscale.console import certificate as certificate_module
from kafscale.console.certificate import Certificate
from kafscale.console.logins import Entrance
from kafscale.console.server import serving
from kafscale.console.settings import ConsoleSettings
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.testkit.authority import Authority

DONE_S = 60


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def shown(certificate: Certificate, authority: Authority) -> int:
    """The serial number that a browser gets, without a socket."""
    asking = ssl.create_default_context(cafile=str(authority.ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server, server_hostname="console.example.com")
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def serial(files: PemFiles) -> int:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number


def test_a_renewed_certificate_is_used_by_the_next_connection(authority: Authority) -> None:
    files = authority.issue("console.example.com", "10.0.0.9", "fd00::9")
    certificate = Certificate(files.certificate, files.key)
    assert certificate.names == {"console.example.com", "10.0.0.9", "[fd00::9]"}
    before = serial(files)
    assert certificate.reload() is None
    authority.issue("console.example.com", "kafka.example.com", into=files)
    assert shown(certificate, authority) == before
    assert certificate.reload() is True
    assert shown(certificate, authority) == serial(files) != before
    assert certificate.names == {"console.example.com", "kafka.example.com"}
    assert certificate.reload() is None


async def test_the_console_has_the_names_of_its_renewed_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_module, "LOOK_S", 0.01)
    files = authority.issue("old.example.com", "127.0.0.1")
    settings = ConsoleSettings(port=0, certificate=files.certificate, key=files.key)
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(authority.ca)))
    async with (
        asyncio.timeout(DONE_S),
        serving(Entrance("127.0.0.1:1", OPEN), settings) as url,
        aiohttp.ClientSession(url, connector=trusted) as session,
    ):

        async def status(name: str) -> int:
            async with session.get("/", headers={"Host": name}) as answer:
                return answer.status

        assert [await status(name) for name in ("old.example.com", "new.example.com")] == [200, 403]
        authority.issue("new.example.com", "127.0.0.1", into=files)
        while await status("new.example.com") != 200:
            await asyncio.sleep(0.01)
        assert await status("old.example.com") == 403


@pytest.mark.parametrize("content", [b"", b"-----BEGIN", None])
def test_a_certificate_that_cannot_be_used_leaves_the_one_before(
    authority: Authority, content: bytes | None
) -> None:
    files = authority.issue("console.example.com")
    certificate = Certificate(files.certificate, files.key)
    before = serial(files)
    other = authority.issue("other.example.com")
    files.certificate.write_bytes(other.certificate.read_bytes() if content is None else content)
    assert certificate.reload() is False
    assert shown(certificate, authority) == before
    files.certificate.unlink()
    assert certificate.reload() is False
    authority.issue("console.example.com", into=files)
    assert certificate.reload() is True
    assert shown(certificate, authority) == serial(files) != before
