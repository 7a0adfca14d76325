"""A front door's copy of users, ACLs and quotas: answers that wait for a change, and what ends with a copy too old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from door_fakes import Sent
from door_harness import Cluster, settled, until
from kafscale.access.quota import QuotaEntity, QuotaKey
from kafscale.access.scram_credentials import ScramMechanism
from kafscale.frontdoor import access as door_access
from kafscale.frontdoor.access import AccessMeans, DoorAccess, StoredUsers, open_access
from kafscale.frontdoor.api import Backend, Forward
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.access import ProcessAccess
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.access_keys import AccessKeys, Change, change_txn
from kafscale.storage.access_records import encode_quotas
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import Keyspace
from kafscale.storage.user_writes import create_user, credentials_for
from kafscale.testkit.fixtures import etcd, etcd_server, keyspace
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import create_acls, describe_acls, metadata

__all__ = ["etcd", "etcd_server", "keyspace"]

CONTROL = "control"
STALE_MS = 300_000


@dataclass
class FakeCopy:
    """Implements AccessCopy. `confirmations`: those that were asked for; a test ends them."""

    age: float = 0.0
    confirmations: list[asyncio.Future[None]] = field(default_factory=list)

    def age_s(self) -> float:
        return self.age

    async def ready(self) -> None:
        return None

    async def loaded(self) -> None:
        return None

    async def confirm(self) -> None:
        asked = asyncio.get_running_loop().create_future()
        self.confirmations.append(asked)
        await asked


@dataclass(frozen=True)
class Door:
    cluster: Cluster
    copy: FakeCopy

    def sent(self) -> list[Sent]:
        return self.cluster.stream(Backend.ADMIN, 1, CONTROL).sent


@asynccontextmanager
async def door(*, decides: bool = True, timeout_ms: int = 60_000) -> AsyncIterator[Door]:
    copy = FakeCopy()
    access = DoorAccess(copy=copy, stale_ms=STALE_MS, decides=decides)
    async with Cluster.running(access=access, frontdoor_request_timeout_ms=timeout_ms) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        yield Door(cluster, copy)


class _Ended(Exception):
    """Ends the tasks of a process."""


@asynccontextmanager
async def process_access(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[ProcessAccess]:
    try:
        async with asyncio.TaskGroup() as tasks:
            yield ProcessAccess(etcd, keyspace, acls_only=False, tasks=tasks)
            raise _Ended
    except* _Ended:
        pass


CREATE = b"".join(map(bytes, create_acls.encode_request(create_acls.CreateAclsRequest(), 3)))
DESCRIBE = b"".join(map(bytes, describe_acls.encode_request(describe_acls.DescribeAclsRequest(), 3)))
METADATA = b"".join(map(bytes, metadata.encode_request(metadata.MetadataRequest(topics=[]), 12)))


def test_the_calls_that_change_users_acls_or_quotas_wait_and_no_others() -> None:
    waiting = {
        key
        for key, api in SERVED.items()
        if isinstance(api.dispatch, Forward) and api.dispatch.changes_access
    }
    assert waiting == {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    }


async def test_the_answer_about_a_change_leaves_when_this_front_door_has_the_change() -> None:
    async with door() as one:
        client = one.cluster.client()
        client.ask(30, 3, CREATE)
        one.sent()[0].reply(b"created")
        await settled()
        assert client.answers == []
        one.copy.confirmations[0].set_result(None)
        await until(lambda: bool(client.answers))
        assert client.answers[0].body == b"created"


async def test_other_answers_wait_for_nothing() -> None:
    async with door() as one:
        client = one.cluster.client()
        client.ask(29, 3, DESCRIBE)
        one.sent()[0].reply(b"described")
        await settled()
        assert client.answers[0].body == b"described"
        assert one.copy.confirmations == []


@pytest.mark.parametrize("fails", [True, False], ids=["etcd does not answer", "etcd takes too long"])
async def test_a_change_that_was_made_is_no_failure_because_the_copy_is_late(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_access, "CONFIRM_S", 0.05)
    async with door() as one:
        client = one.cluster.client()
        client.ask(30, 3, CREATE)
        one.sent()[0].reply(b"created")
        await settled()
        if fails:
            one.copy.confirmations[0].set_exception(EtcdError("away"))
        await until(lambda: bool(client.answers))
        assert client.answers[0].body == b"created"
        assert not client.hung_up


async def test_a_request_whose_time_ends_during_the_wait_gets_its_answer() -> None:
    async with door(timeout_ms=1_000) as one:
        client = one.cluster.client()
        client.ask(30, 3, CREATE)
        one.sent()[0].reply(b"created")
        await settled()
        (exchange,) = client.connection.exchanges.values()
        exchange.deadline_ms = 0
        await until(lambda: bool(client.answers))
        assert client.answers[0].body == b"created"
        assert one.copy.confirmations[0].cancelled()


async def test_a_client_that_leaves_during_the_wait_ends_it() -> None:
    async with door() as one:
        client = one.cluster.client()
        client.ask(30, 3, CREATE)
        one.sent()[0].reply(b"created")
        await settled()
        client.leave()
        await settled()
        assert one.copy.confirmations[0].cancelled()
        assert client.answers == []


async def test_a_refusal_waits_for_nothing() -> None:
    async with door() as one:
        client = one.cluster.client()
        client.ask(30, 3, CREATE)
        one.sent()[0].reply(status=ReplyStatus.LOST)
        await settled()
        assert one.copy.confirmations == []


@pytest.mark.parametrize("decides", [True, False])
async def test_connections_end_when_the_acls_are_too_old_if_acls_decide(decides: bool) -> None:
    async with door(decides=decides) as one:
        one.copy.age = STALE_MS / 1000
        client = one.cluster.client()
        client.ask(3, 12, METADATA)
        await asyncio.sleep(0)
        assert not client.hung_up
        one.copy.age += 1
        assert not DoorAccess(copy=one.copy, stale_ms=STALE_MS, decides=decides).fresh
        if decides:
            await until(lambda: client.hung_up)
            assert client.answers == []
        late = one.cluster.client()
        await settled()
        assert late.hung_up is decides
        one.copy.age = 0
        assert not one.cluster.client().hung_up


def test_users_are_as_fresh_as_the_copy_and_their_key_is_not_printed() -> None:
    copy: Any = FakeCopy()
    access = DoorAccess(copy=copy, stale_ms=STALE_MS, decides=False)
    users = StoredUsers(view=copy, access=access, decoy_key=b"secret-decoy-key")
    assert users.fresh
    copy.age = STALE_MS / 1000 + 0.1
    assert not users.fresh
    assert "secret" not in f"{users!r} {AccessMeans(copy=access, users=users)!r}"


async def test_a_front_door_without_logins_and_authorizer_knows_the_quotas_and_is_ready_despite_damage(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    keys, alice = AccessKeys(keyspace), QuotaEntity(user="alice")
    await etcd.put(keys.quota(QuotaEntity(user="bob")), b"\xff")
    rate = encode_quotas({QuotaKey.PRODUCER_BYTE_RATE: 5.0})
    assert (await etcd.txn(change_txn(keys.quotas, [Change(keys.quota(alice), 0, rate)]))).succeeded
    async with process_access(etcd, keyspace) as process:
        means = await open_access(FrontdoorSettings(), process, etcd, SystemClock())
        assert means.copy is not None
        async with asyncio.timeout(10):
            await means.copy.ready()
        assert means.users is None
        assert not means.copy.shuts_out
        assert means.quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, "alice", "") is not None
        assert means.quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, "bob", "") is None
        assert not (await etcd.range(keys.decoy_key)).kvs


async def test_logins_find_the_stored_users_and_all_front_doors_have_one_key(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    settings = FrontdoorSettings(listeners="SASL_PLAINTEXT://127.0.0.1:0")
    mechanism = ScramMechanism.SCRAM_SHA_256
    keys, decoy_keys = AccessKeys(keyspace), set()
    assert await create_user(etcd, keys, "alice", credentials_for("alice-secret", [mechanism]))
    for _ in range(2):
        async with process_access(etcd, keyspace) as process:
            means = await open_access(settings, process, etcd, SystemClock())
            assert means.copy is not None
            assert means.users is not None
            await means.copy.copy.ready()
            assert means.users.credential("alice", mechanism) is not None
            assert means.users.credential("bob", mechanism) is None
            assert means.users.fresh
            assert not means.copy.shuts_out
            decoy_keys.add(means.users.decoy_key)
    assert len(decoy_keys) == 1
