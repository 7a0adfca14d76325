"""Which CAs a listener names when it asks for a certificate: all that it accepts, as Kafka does."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from kafscale.frontdoor.listeners.listener_security import ClientAuth, TlsSettings
from kafscale.frontdoor.listeners.tls_contexts import load, send_ca_names
from kafscale.testkit.authority import Authority
from tls_clients import HOST


def first_answer(server: ssl.SSLContext) -> bytes:
    """What the server sends after a ClientHello. With TLS 1.2 it is in plain."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=HOST)
    asked = server.wrap_bio(to_server, to_client, server_side=True)
    for one in (asking, asked):
        with pytest.raises(ssl.SSLWantReadError):
            one.do_handshake()
    return to_client.read()


def name_of(authority: Authority) -> bytes:
    return x509.load_pem_x509_certificate(authority.ca.read_bytes()).subject.public_bytes()


@pytest.mark.parametrize("auth", [ClientAuth.REQUIRED, ClientAuth.REQUESTED, ClientAuth.NONE])
def test_a_listener_names_every_ca_whose_certificates_it_accepts(tmp_path: Path, auth: ClientAuth) -> None:
    servers, *clients = (Authority(tmp_path / name) for name in ("servers", "one", "other"))
    accepted = tmp_path / "accepted.pem"
    accepted.write_bytes(b"".join(one.ca.read_bytes() for one in clients))
    own = servers.issue(HOST)
    settings = TlsSettings(
        certificate=own.certificate,
        key=own.key,
        ca=accepted,
        client_auth=auth,
    )
    sent = first_answer(load(settings).context)
    assert [name_of(one) in sent for one in clients] == [auth is not ClientAuth.NONE] * 2


def test_a_file_without_a_certificate_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing\n")
    assert not send_ca_names(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path / "empty.pem")
    assert not send_ca_names(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path / "absent.pem")
