"""Certificates that are replaced while clients come, and files that cannot be used."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace as changed
from pathlib import Path

import pytest
import structlog.testing
from cryptography.hazmat.primitives import serialization
from door_harness import until
from door_sockets import API_VERSIONS_0, System, close, on_uvloop, read_answer, running
from kafscale.frontdoor.listeners import tls_contexts
from kafscale.frontdoor.listeners.listener_security import ClientAuth, TlsSettings
from kafscale.frontdoor.listeners.tls_contexts import ListenerTls, TlsFilesWrong, load, open_all
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.testkit.authority import Authority, replace
from tls_clients import Certificates, asks_versions, connect


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def settings_of(files: PemFiles) -> TlsSettings:
    return TlsSettings(certificate=files.certificate, key=files.key)


async def reload(system: System) -> None:
    await system.entrances.certificates.look()


def reloads(system: System) -> dict[tuple[str, ...], float]:
    (reading,) = (one for one in system.metrics.read() if one.name.endswith("tls_reloads_total"))
    return {tuple(labels): value for labels, value in reading.values}  # type: ignore[misc]


def serial_of(writer: asyncio.StreamWriter) -> object:
    session: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = session.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]


@on_uvloop
async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        reader, old = await connect(system, certificates.context())
        certificates.servers.issue("localhost", into=certificates.server)
        await reload(system)
        _, new = await connect(system, certificates.context())
        assert serial_of(old) != serial_of(new)
        old.write(API_VERSIONS_0)
        assert (await read_answer(reader))[0] == 9
        assert reloads(system) == {("SSL", "loaded"): 1}
        await reload(system)
        assert reloads(system) == {("SSL", "loaded"): 1}, "files that have not changed are not read"
        for writer in (old, new):
            await close(writer)


@on_uvloop
async def test_no_client_is_refused_while_certificates_change(certificates: Certificates) -> None:
    """The files are replaced one after the other, so some looks find a pair that does not fit."""
    async with running(**certificates.settings()) as system:
        served = 0
        done = asyncio.Event()

        async def client() -> None:
            nonlocal served
            while not done.is_set():
                assert await asks_versions(system, certificates.context())
                served += 1

        async with asyncio.TaskGroup() as clients:
            for _ in range(4):
                clients.create_task(client())
            for _ in range(6):
                before = served
                fresh = certificates.servers.issue("localhost", into=PemFiles(*scratch(certificates)))
                replace(certificates.server.certificate, fresh.certificate.read_bytes())
                await reload(system)
                replace(certificates.server.key, fresh.key.read_bytes())
                await reload(system)
                await until(lambda before=before: served > before + 5)  # type: ignore[misc]
            done.set()
        assert reloads(system) == {("SSL", "refused"): 6, ("SSL", "loaded"): 6}


def scratch(certificates: Certificates) -> tuple[Path, Path, Path]:
    folder = certificates.servers.folder
    return folder / "fresh.pem", folder / "fresh.key", certificates.servers.ca


@on_uvloop
async def test_a_pair_that_does_not_fit_is_said_once_and_the_old_one_stays(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with running(**certificates.settings()) as system:
        other = Authority(tmp_path / "other").issue("localhost")
        replace(certificates.server.key, other.key.read_bytes())
        with structlog.testing.capture_logs() as logged:
            await reload(system)
            await reload(system)
        assert [line["event"] for line in logged] == ["certificate not loaded"]
        assert "key values mismatch" in str(logged[0]["why"])
        assert "PRIVATE" not in str(logged)
        assert await asks_versions(system, certificates.context())
        certificates.server.key.unlink()
        await reload(system)
        assert await asks_versions(system, certificates.context())


@on_uvloop
async def test_a_ca_that_is_replaced_ends_the_clients_of_the_one_before(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with running(**certificates.mutual()) as system:
        alice = certificates.context(certificates.clients.client("alice"))
        next_clients = Authority(tmp_path / "next")
        bob = certificates.context(next_clients.client("bob"))
        assert [await asks_versions(system, one) for one in (alice, bob)] == [True, False]
        replace(certificates.clients.ca, next_clients.ca.read_bytes())
        await reload(system)
        assert [await asks_versions(system, one) for one in (alice, bob)] == [False, True]


@on_uvloop
async def test_a_revoked_certificate_is_refused_from_the_next_look_on(certificates: Certificates) -> None:
    async with running(**certificates.mutual()) as system:
        files = certificates.clients.client("alice")
        alice, bob = (certificates.context(one) for one in (files, certificates.clients.client("bob")))
        assert await asks_versions(system, alice)
        ca = certificates.clients.ca.read_bytes()
        replace(certificates.clients.ca, ca + certificates.clients.revoke(files))
        await reload(system)
        assert [await asks_versions(system, one) for one in (alice, bob)] == [False, True]


@on_uvloop
async def test_clients_of_a_ca_that_was_revoked_are_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    root, child = certificates.clients, certificates.clients.child(tmp_path / "child")
    alice, bob = (certificates.context(one) for one in (root.client("alice"), child.client("bob")))
    async with running(**certificates.mutual()) as system:
        assert [await asks_versions(system, one) for one in (alice, bob)] == [True, True]
        ca = root.ca.read_bytes()
        replace(root.ca, ca + root.revocations() + child.revocations())
        await reload(system)
        assert [await asks_versions(system, one) for one in (alice, bob)] == [True, True]
        replace(root.ca, ca + root.revocations(child.ca) + child.revocations())
        await reload(system)
        assert [await asks_versions(system, one) for one in (alice, bob)] == [True, False]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_before_does_not_let_a_client_in_again(
    certificates: Certificates, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    async def run() -> None:
        async with running(**certificates.mutual()) as system:
            alice = certificates.context(certificates.clients.client("alice"))
            alice.minimum_version = alice.maximum_version = version
            first = await asyncio.to_thread(ask, system, alice, None)
            replace(certificates.clients.ca, Authority(tmp_path / "next").ca.read_bytes())
            await reload(system)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(ask, system, alice, first)

    on_uvloop(run)()


@on_uvloop
async def test_a_session_ends_with_the_certificate_that_it_began_with(certificates: Certificates) -> None:
    async with running(**certificates.mutual()) as system:
        alice = certificates.context(certificates.clients.client("alice"))
        alice.maximum_version = ssl.TLSVersion.TLSv1_2  # with TLS 1.3 no session can be resumed
        first = await asyncio.to_thread(ask, system, alice, None)
        second = await asyncio.to_thread(ask, system, alice, first)
        assert first is not None
        assert second is not None
        assert second.id == first.id, "it was resumed"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafscale.frontdoor.listeners.tls_stream.wall_s", lambda: 1e11)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(ask, system, alice, first)


def ask(system: System, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    """One request; the session that the client could resume. Raises SSLError and OSError."""
    with (
        socket.create_connection(("127.0.0.1", system.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost", session=session) as client,
    ):
        client.sendall(API_VERSIONS_0)
        if not client.recv(1):
            raise ConnectionResetError
        return client.session


@on_uvloop
async def test_the_time_until_the_end_of_the_certificate_is_a_metric(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        (reading,) = (one for one in system.metrics.read() if one.name.endswith("tls_certificate_seconds"))
        ((labels, seconds),) = reading.values
        assert tuple(labels) == ("SSL",)
        assert isinstance(seconds, float)
        assert seconds > 86_400


async def test_the_watch_looks_by_itself(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_contexts, "LOOK_S", 0.01)
    async with running(**certificates.settings()) as system:
        watching = asyncio.ensure_future(system.entrances.run())
        certificates.servers.issue("localhost", into=certificates.server)
        await until(lambda: reloads(system).get(("SSL", "loaded")) == 1)
        watching.cancel()


# ---- files that cannot be used


def test_each_kind_of_bad_file_is_named_with_its_reason(certificates: Certificates, tmp_path: Path) -> None:
    good = settings_of(certificates.server)
    junk, empty = tmp_path / "junk", tmp_path / "empty"
    junk.write_text("junk")
    empty.write_text("")
    other = certificates.servers.issue("other")
    expired = certificates.servers.issue("expired", expired=True)
    cases = {
        "/missing: No such file or directory": changed(good, certificate=tmp_path / "missing"),
        "absent: No such file or directory": changed(good, key=tmp_path / "absent"),
        "junk": changed(good, certificate=junk),
        "empty": changed(good, key=empty),
        "key values mismatch": changed(good, key=other.key),
        "expired at 2020": settings_of(expired),
        "junk: no certificate or crl found": changed(good, ca=junk, client_auth=ClientAuth.REQUIRED),
    }
    for says, settings in cases.items():
        with pytest.raises(TlsFilesWrong) as wrong:
            load(settings)
        assert says in str(wrong.value)
    with pytest.raises(TlsFilesWrong, match="listener OUT: .*missing"):
        ListenerTls("OUT", cases["/missing: No such file or directory"])


def test_an_encrypted_key_needs_the_file_with_its_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    files = certificates.server
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret word")
    pkcs8 = serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, encryption))
    password = tmp_path / "password"
    with pytest.raises(TlsFilesWrong, match="is encrypted; set KAFSCALE_SSL_KEY_PASSWORD_FILE"):
        load(settings_of(files))
    with_password = changed(settings_of(files), key_password_file=password)
    password.write_text("another word\n")
    with pytest.raises(TlsFilesWrong) as wrong:
        load(with_password)
    assert "word" not in str(wrong.value).replace(str(password), "")
    password.write_text("secret word\n")
    assert load(with_password).context is not None


def test_a_listener_without_tls_needs_no_files() -> None:
    assert open_all([]) == {}
