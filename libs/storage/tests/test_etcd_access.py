"""Users and certificates: who may talk to etcd, and what happens when a token runs out."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.runtime.etcd_binary import EtcdProcess, MemberTls
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, EtcdTls, EtcdUnknown, UnknownKind
from kafscale.storage.etcd.pool import Method
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import InstanceState, Pace, Registration
from kafscale.storage.rights.etcd import KeyRange, Permission
from kafscale.testkit.authority import Authority
from kafscale.testkit.etcd import start_etcd

PASSWORD = "correct horse"


QUICK = Pace(ttl_s=3, interval_s=0.1, silence_max_s=4)


async def renewed(client: EtcdClient, registration: Registration, *, after_s: float) -> None:
    """Returns when a keepalive that was sent after this moment has succeeded."""
    async with asyncio.timeout(10):
        while registration.renewed_at_s <= after_s:
            await client.lease_remaining_s(registration.lease_id, timeout_s=5)


async def enable_auth(client: EtcdClient) -> None:
    calls: tuple[tuple[str, Message, type[Message]], ...] = (
        ("UserAdd", pb.AuthUserAddRequest(name="root", password=PASSWORD), pb.AuthUserAddResponse),
        ("RoleAdd", pb.AuthRoleAddRequest(name="root"), pb.AuthRoleAddResponse),
        (
            "UserGrantRole",
            pb.AuthUserGrantRoleRequest(user="root", role="root"),
            pb.AuthUserGrantRoleResponse,
        ),
        ("UserAdd", pb.AuthUserAddRequest(name="guest", password=PASSWORD), pb.AuthUserAddResponse),
        ("AuthEnable", pb.AuthEnableRequest(), pb.AuthEnableResponse),
    )
    for name, request, answer in calls:
        await client._pool.once(Method(f"/etcdserverpb.Auth/{name}", answer), request, 3.0)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EtcdProcess]:
    with start_etcd(tmp_path) as server:
        yield server


async def test_a_user_reads_writes_and_watches_and_its_token_is_renewed(guarded: EtcdProcess) -> None:
    opener = EtcdClient.connect([guarded.endpoint])
    await enable_auth(opener)
    with pytest.raises(EtcdRejected):
        await opener.put(b"a", b"1")
    await opener.close()

    client = EtcdClient.connect([guarded.endpoint], user="root", password=PASSWORD)
    first = await client.put(b"a", b"1")
    async with client.watch(b"a", start_revision=first.revision + 1) as watch:
        await client.put(b"a", b"2")
        assert [e.kv.value for e in (await anext(watch)).events] == [b"2"]
        # Tokens live in etcd's memory: after a restart every token is stale.
        guarded.kill()
        await guarded.start()
        await client.put(b"a", b"3", timeout_s=10)
        assert [e.kv.value for e in (await anext(watch)).events] == [b"3"]
        kv = await client.get(b"a")
        assert kv is not None
        assert kv.version == 3, "renewing a token sends nothing twice"
    await client.close()


async def test_a_wrong_password_and_a_missing_right_are_refused_at_once(guarded: EtcdProcess) -> None:
    opener = EtcdClient.connect([guarded.endpoint])
    await enable_auth(opener)
    await opener.close()
    wrong = EtcdClient.connect([guarded.endpoint], user="root", password="wrong")
    with pytest.raises(EtcdRejected, match="authentication failed"):
        await wrong.put(b"a", b"1")
    await wrong.close()
    guest = EtcdClient.connect([guarded.endpoint], user="guest", password=PASSWORD)
    with pytest.raises(EtcdRejected, match="permission denied"):
        await guest.put(b"a", b"1")
    with pytest.raises(EtcdRejected, match="permission denied"):
        await anext(guest.watch(b"a", start_revision=1))
    await guest.close()


SHORT_LIVED = ("--auth-token-ttl=1", "--bcrypt-cost=4")


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[EtcdProcess]:
    """Its tokens live for a second without use."""
    with start_etcd(tmp_path, extra=SHORT_LIVED) as server:
        yield server


async def stale(client: EtcdClient, by: EtcdClient) -> None:
    """Returns when etcd has forgotten the client's token. A client with the access of `by` looks from without."""
    probe = EtcdClient(by.access)
    probe._pool._token = client._pool._token
    async with asyncio.timeout(20):
        while probe._pool._token == client._pool._token:
            await asyncio.sleep(1.5)  # longer than a token lives: each use would renew it
            await probe.get(b"a")
    await probe.close()


async def test_no_request_watch_or_keepalive_fails_when_tokens_expire(forgetful: EtcdProcess) -> None:
    opener = EtcdClient.connect([forgetful.endpoint])
    await enable_auth(opener)
    await opener.close()
    other = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    client = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    first = await client.put(b"a", b"1")
    async with client.watch(b"a", start_revision=first.revision) as running:
        assert [e.kv.value for e in (await anext(running)).events] == [b"1"]
        await stale(client, other)
        await other.put(b"a", b"2")
        assert [e.kv.value for e in (await anext(running)).events] == [b"2"], "a watch outlives its token"
    await stale(client, other)
    async with client.watch(b"a", start_revision=first.revision) as new:
        assert [e.kv.value for e in (await anext(new)).events] == [b"1", b"2"], "a new watch logs in anew"
    await stale(client, other)
    assert (await client.put(b"a", b"3")).revision > first.revision
    kv = await client.get(b"a")
    assert kv is not None
    assert kv.version == 3
    lease = await client.lease_grant(60)
    await stale(client, other)
    await client.lease_revoke(lease)
    await client.close()
    await other.close()


async def test_requests_that_fail_by_one_stale_token_share_one_login(
    forgetful: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = EtcdClient.connect([forgetful.endpoint])
    await enable_auth(opener)
    await opener.close()
    other = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    client = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    await client.put(b"a", b"1")
    await stale(client, other)
    logins = counted(client, monkeypatch)
    await asyncio.gather(*(client.put(b"a", b"2") for _ in range(100)))
    assert logins == [PASSWORD]
    await client.close()
    await other.close()


def counted(client: EtcdClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords with which the client logs in from now on."""
    logins: list[str] = []
    login = client._pool._login

    async def noted(password: str) -> str | None:
        logins.append(password)
        return await login(password)

    monkeypatch.setattr(client._pool, "_login", noted)
    return logins


async def test_a_refused_login_is_not_repeated_by_each_request(
    forgetful: EtcdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = EtcdClient.connect([forgetful.endpoint])
    await enable_auth(opener)
    await opener.close()
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    other = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    client = EtcdClient.connect([forgetful.endpoint], user="root", password=file)
    await client.put(b"a", b"1")
    users = EtcdUsers(other.access)
    await users.change_password("root", "battery staple")
    logins = counted(client, monkeypatch)
    failed = await asyncio.gather(*(client.put(b"a", b"2") for _ in range(100)), return_exceptions=True)
    assert all(isinstance(each, EtcdUnknown) and each.kind is UnknownKind.LOGIN for each in failed)
    assert len(logins) < 10
    for each in (users, other, client):
        await each.close()


async def test_no_request_fails_while_users_and_roles_change(forgetful: EtcdProcess) -> None:
    """Each change makes every token stale, also a token of a moment ago."""
    opener = EtcdClient.connect([forgetful.endpoint])
    await enable_auth(opener)
    await opener.close()
    client = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    users = EtcdUsers(client.access)
    changed = asyncio.Event()

    async def change() -> None:
        await users.add_role("r")
        for number in range(100):
            await users.grant("r", KeyRange(b"%d" % number), Permission.READ)
        changed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change())
        written = 0
        while not changed.is_set():
            await client.put(b"a", b"%d" % written, timeout_s=10)
            written += 1
    kv = await client.get(b"a")
    assert kv is not None
    assert kv.version == written > 1
    await users.close()
    await client.close()


@pytest.mark.parametrize("file_first", [True, False])
async def test_a_password_rotates_without_a_failed_request(
    forgetful: EtcdProcess, tmp_path: Path, file_first: bool
) -> None:
    opener = EtcdClient.connect([forgetful.endpoint])
    await enable_auth(opener)
    await opener.close()
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    client = EtcdClient.connect([forgetful.endpoint], user="root", password=file)
    registration = await Registration.join(
        client, Keyspace(), role="admin", address="", node_id=None, pace=QUICK
    )
    other = EtcdClient.connect([forgetful.endpoint], user="root", password=PASSWORD)
    users = EtcdUsers(other.access)
    if file_first:
        file.write_text("battery staple")
        await stale(client, other)
        await client.put(b"a", b"1")  # logs in although etcd does not have the new password yet
        await users.change_password("root", "battery staple")
    else:
        await users.change_password("root", "battery staple")
        with pytest.raises(EtcdUnknown, match="authentication failed.*the password is in") as failed:
            await client.put(b"a", b"1")
        assert failed.value.kind is UnknownKind.LOGIN
        file.write_text("battery staple")
        await client.get(b"a", timeout_s=10)  # a read is repeated until it is let in
    await client.put(b"a", b"2")
    await renewed(client, registration, after_s=time.monotonic())
    assert registration.lost_count == 0
    await registration.leave()
    for each in (users, other, client):
        await each.close()


async def test_a_user_of_an_etcd_without_users_is_let_in(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    client = EtcdClient.connect([etcd_server.endpoint], user="root", password=PASSWORD)
    await client.put(keyspace.topic("a"), b"1")
    assert await client.get(keyspace.topic("a")) is not None
    registration = await Registration.join(
        client, keyspace, role="admin", address="", node_id=None, pace=QUICK
    )
    await renewed(client, registration, after_s=registration.renewed_at_s)
    await registration.leave()
    await client.close()


async def test_the_keepalive_authenticates_and_renews_its_token(guarded: EtcdProcess) -> None:
    opener = EtcdClient.connect([guarded.endpoint])
    await enable_auth(opener)
    await opener.close()
    client = EtcdClient.connect([guarded.endpoint], user="root", password=PASSWORD)
    registration = await Registration.join(
        client, Keyspace(), role="admin", address="", node_id=None, pace=QUICK
    )
    await renewed(client, registration, after_s=registration.renewed_at_s)
    guarded.kill()
    await guarded.start()
    await renewed(client, registration, after_s=asyncio.get_running_loop().time())
    await registration.set_state(InstanceState.READY)
    assert registration.lost_count == 0
    await registration.leave()
    await client.close()


@dataclass(frozen=True, slots=True)
class Certificates:
    ca: Path
    server: MemberTls
    client: EtcdTls


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("pki")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, "req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test-ca")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in ("server", "client"):
        openssl(folder, "req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem")
    ca = folder / "ca.pem"
    return Certificates(
        ca,
        MemberTls(cert=folder / "server.pem", key=folder / "server.key", client_ca=ca),
        EtcdTls(ca=ca, cert=folder / "client.pem", key=folder / "client.key"),
    )


async def test_tls_in_both_directions(tmp_path: Path, certificates: Certificates) -> None:
    with start_etcd(tmp_path, tls=certificates.server) as server:
        assert server.endpoint.startswith("https://")
        client = EtcdClient.connect([server.endpoint], tls=certificates.client)
        put = await client.put(b"a", b"1")
        async with client.watch(b"a", start_revision=put.revision) as watch:
            assert (await anext(watch)).events[0].kv.value == b"1"
        registration = await Registration.join(
            client, Keyspace(), role="admin", address="", node_id=None, pace=Pace(interval_s=0.05)
        )
        joined_at_s = registration.renewed_at_s
        async with asyncio.timeout(10):
            while registration.renewed_at_s == joined_at_s:
                await client.get(b"a")
        await registration.leave()
        await client.close()

        nameless = EtcdClient.connect([server.endpoint], tls=EtcdTls(ca=certificates.ca))
        with pytest.raises(EtcdUnknown):
            await nameless.put(b"a", b"2", timeout_s=0.5)
        await nameless.close()
        distrustful = EtcdClient.connect([server.endpoint])
        with pytest.raises(EtcdUnknown):
            await distrustful.put(b"a", b"2", timeout_s=0.5)
        await distrustful.close()


async def test_the_common_name_of_a_certificate_is_a_user_that_needs_no_login(
    tmp_path: Path, certificates: Certificates
) -> None:
    with start_etcd(tmp_path, tls=certificates.server, extra=("--bcrypt-cost=4",)) as server:
        client = EtcdClient.connect([server.endpoint], tls=certificates.client)
        users = EtcdUsers(client.access)
        await users.add_role("reader")
        await users.grant("reader", KeyRange(b"a"), Permission.READ)
        await users.add_user("client", PASSWORD)  # the certificate's common name
        await users.grant_role("client", "reader")
        await users.close()
        await enable_auth(client)
        assert await client.get(b"a") is None
        with pytest.raises(EtcdRejected, match="permission denied"):
            await client.put(b"a", b"1")
        await client.close()


async def test_replaced_certificates_are_used_when_a_connection_is_made_anew(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    ours, theirs = first.role("fetch"), first.issue("127.0.0.1")
    trusted = tmp_path / "clients-ca.pem"
    trusted.write_bytes(first.ca.read_bytes())
    tls = MemberTls(cert=theirs.certificate, key=theirs.key, client_ca=trusted)
    with start_etcd(tmp_path, tls=tls) as server:
        files = EtcdTls(ca=ours.ca, cert=ours.certificate, key=ours.key)
        client = EtcdClient.connect([server.endpoint], tls=files)
        await client.put(b"a", b"1")
        server.kill()
        second.issue("127.0.0.1", into=theirs)
        trusted.write_bytes(second.ca.read_bytes())
        await server.start()
        with pytest.raises(EtcdUnknown):  # the files of this client are not replaced yet
            await client.put(b"a", b"2", timeout_s=1)
        second.role("fetch", into=ours)
        second.trusted_in(ours)
        with pytest.raises(EtcdUnknown):  # this failure makes it look at the files
            await client.put(b"a", b"2", timeout_s=1)
        await client.put(b"a", b"3", timeout_s=10)
        kv = await client.get(b"a")
        assert kv is not None
        assert kv.value == b"3"
        await client.close()


def test_a_stale_token_is_told_from_a_missing_right() -> None:
    stale = EtcdRejected(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
    assert stale.is_stale_token
    denied = EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
    assert not denied.is_stale_token
