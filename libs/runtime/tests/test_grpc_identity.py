"""Mutual TLS between processes, over real connections."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog.testing
from cryptography import x509
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import (
    RENEWAL_PAUSE_S,
    GrpcIdentity,
    IdentityUnusable,
    PemFiles,
    Pems,
    plain,
)
from kafscale.runtime.grpc_server import GrpcFace
from kafscale.runtime.health import Health
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process_metrics import certificate_seconds
from kafscale.runtime.service import ServiceParts
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Reply, ReplyStatus
from kafscale.runtime.stream.options import Stream
from kafscale.testkit.authority import Authority, replace
from kafscale.testkit.proxy import FaultProxy
from stream_harness import echo, meta


@asynccontextmanager
async def service(identity: GrpcIdentity | None) -> AsyncIterator[str]:
    """The address of a produce service that echoes."""
    clock = SystemClock()
    metrics = Metrics("produce")
    face = GrpcFace(
        health=Health("produce"), clock=clock, watch=LoopWatch(clock), memory_bytes=1 << 26, metrics=metrics
    )
    port = await face.start("127.0.0.1:0", identity)
    face.offer(ServiceParts(bulk={0: echo}), None)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await face.stop()


@asynccontextmanager
async def connected(
    address: str, caller: GrpcIdentity | None, role: str = "produce"
) -> AsyncIterator[StreamClient]:
    client = StreamClient(address, kind=Stream.BULK, dial=plain if caller is None else caller.dial(role))
    try:
        yield client
    finally:
        await client.close()


async def asked(address: str, caller: GrpcIdentity | None, role: str = "produce") -> Reply:
    """One request on a new connection."""
    async with connected(address, caller, role) as client:
        return await client.send(meta(), (b"hi",)).future


def answered(reply: Reply) -> bool:
    return (reply.status, bytes(reply.body)) == (ReplyStatus.FINAL, b"echo:hi")


async def test_a_front_door_is_answered(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    door, produce = (GrpcIdentity(authority.role(role)) for role in ("frontdoor", "produce"))
    async with service(produce) as address:
        assert answered(await asked(address, door))


async def test_a_handshake_over_a_slow_network_is_waited_for(tmp_path: Path) -> None:
    """gRPC takes its shortest pause between two attempts as the time limit of one. It was 100 ms."""
    authority = Authority(tmp_path)
    door, produce = (GrpcIdentity(authority.role(role)) for role in ("frontdoor", "produce"))
    async with service(produce) as address:
        host, _, port = address.rpartition(":")
        async with FaultProxy(host, int(port)) as proxy:
            proxy.thin(5_000)
            assert answered(await asked(proxy.address, door))


async def test_without_certificates_anybody_is_answered() -> None:
    async with service(None) as address:
        assert answered(await asked(address, None))


@pytest.mark.parametrize("role", ["produce", "fetch", "coordinator", "admin", "upkeep"])
async def test_who_is_no_front_door_cannot_speak_for_clients(tmp_path: Path, role: str) -> None:
    authority = Authority(tmp_path)
    produce = GrpcIdentity(authority.role("produce"))
    async with service(produce) as address:
        reply = await asked(address, GrpcIdentity(authority.role(role)))
    assert reply.status is ReplyStatus.REFUSED
    assert f"PERMISSION_DENIED: only front doors send requests; the certificate shows {role}" in reply.reason


async def test_a_name_of_another_domain_is_no_role(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with service(GrpcIdentity(authority.role("produce"))) as address:
        for name in ("frontdoor.kafscale.internal.example.com", "frontdoor"):
            reply = await asked(address, GrpcIdentity(authority.issue(name)))
            assert reply.status is ReplyStatus.REFUSED
            assert "the certificate shows no role" in reply.reason


async def test_strangers_get_no_connection(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    theirs_door = theirs.role("frontdoor")
    mixed = PemFiles(theirs_door.certificate, theirs_door.key, ours.ca)
    async with service(GrpcIdentity(ours.role("produce"))) as address:
        assert (await asked(address, None)).status is ReplyStatus.REFUSED
        assert (await asked(address, GrpcIdentity(mixed))).status is ReplyStatus.REFUSED
        late = GrpcIdentity(ours.role("frontdoor", expired=True))
        assert (await asked(address, late)).status is ReplyStatus.REFUSED


async def test_nobody_answers_in_the_place_of_another_role(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    door = GrpcIdentity(ours.role("frontdoor"))
    theirs_produce = theirs.role("produce")
    async with service(GrpcIdentity(ours.role("fetch"))) as address:
        assert (await asked(address, door, "produce")).status is ReplyStatus.REFUSED
        assert answered(await asked(address, door, "fetch"))
    mixed = PemFiles(theirs_produce.certificate, theirs_produce.key, ours.ca)
    async with service(GrpcIdentity(mixed)) as address:
        assert (await asked(address, door)).status is ReplyStatus.REFUSED
    async with service(None) as address:
        assert (await asked(address, door)).status is ReplyStatus.REFUSED


async def test_new_files_count_for_the_next_connection_and_old_ones_stay_up(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    files, door_files = first.role("produce"), first.role("frontdoor")
    old_door = GrpcIdentity(first.role("frontdoor", into=PemFiles(tmp_path / "c", tmp_path / "k", first.ca)))
    door = GrpcIdentity(door_files)
    async with service(GrpcIdentity(files)) as address, connected(address, door) as client:
        assert answered(await client.send(meta(), (b"hi",)).future)
        for each in (files, door_files):
            second.trusted_in(each)
        second.role("produce", into=files)
        second.role("frontdoor", into=door_files)
        assert answered(await asked(address, door))
        assert old_door.current().ca == door.current().ca, "both read the same file"
        assert (await asked(address, old_door)).status is ReplyStatus.REFUSED, "it has the old certificate"
        assert answered(await client.send(meta(), (b"hi",)).future)


async def test_files_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, other = authority.role("produce"), authority.role("fetch")
    door = GrpcIdentity(authority.role("frontdoor"))
    async with service(GrpcIdentity(files)) as address:
        with structlog.testing.capture_logs() as lines:
            replace(files.key, other.key.read_bytes())
            for _ in range(2):
                assert answered(await asked(address, door))
            files.certificate.unlink()
            assert answered(await asked(address, door))
        events = [line["event"] for line in lines if line["event"].startswith("certificate")]
        assert events.count("certificate not loaded") == 1, "it is said once"
        assert "certificate not read" in events
        authority.role("produce", into=files)
        assert answered(await asked(address, door))


async def test_a_server_waits_before_it_shows_new_files_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections that have begun need the wait (tools/grpc_reload_crash)."""
    authority, waits = Authority(tmp_path), list[float]()
    monkeypatch.setattr("kafscale.runtime.grpc_identity.time.sleep", waits.append)
    files, door = authority.role("produce"), GrpcIdentity(authority.role("frontdoor"))
    async with service(GrpcIdentity(files)) as address:
        assert answered(await asked(address, door))
        assert waits == []
        authority.role("produce", into=files)
        for _ in range(2):
            assert answered(await asked(address, door))
        assert waits == [RENEWAL_PAUSE_S]


def test_files_that_change_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate may be new, and the key still the old one."""
    authority = Authority(tmp_path)
    files = authority.role("produce")
    identity = GrpcIdentity(files)
    first, read = identity.current(), PemFiles.read

    def read_too_early(self: PemFiles) -> Pems:
        found = read(self)
        authority.role("produce", into=files)
        return found

    authority.role("produce", into=files)
    with monkeypatch.context() as patched:
        patched.setattr(PemFiles, "read", read_too_early)
        assert identity.current() is first
    assert identity.current().certificate == files.certificate.read_bytes()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.role("produce")
    for wrong in (
        PemFiles(tmp_path / "absent.pem", good.key, good.ca),
        PemFiles(good.certificate, authority.role("fetch").key, good.ca),
        PemFiles(good.certificate, good.key, tmp_path / "absent.pem"),
    ):
        with pytest.raises(IdentityUnusable, match=r"\.pem"):
            GrpcIdentity(wrong)


@pytest.mark.parametrize("expired", [False, True])
def test_a_scrape_says_how_long_the_certificate_is_good(tmp_path: Path, expired: bool) -> None:
    authority = Authority(tmp_path)
    files = authority.role("produce", expired=not expired)
    identity = GrpcIdentity(files)
    authority.role("produce", expired=expired, into=files)
    [(labels, found)] = certificate_seconds(identity)
    seconds = float(str(found))
    own = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert labels == ()
    assert seconds == pytest.approx(own.not_valid_after_utc.timestamp() - time.time(), abs=60)
    assert (seconds < 0) is expired
    assert list(certificate_seconds(None)) == []
