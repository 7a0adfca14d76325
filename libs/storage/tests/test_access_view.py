"""The view of ACLs, quotas and users: it is complete when it is ready, and damage takes rights away only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.authorizer import Authorizer
from kafscale.access.decoys import USUAL, form_of
from kafscale.access.principals import Principal
from kafscale.access.quota import QuotaEntity, QuotaKey
from kafscale.access.scram_credentials import ScramMechanism, credential_of_password
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage import access_view
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.access_records import denial_of, encode_acl, encode_credential, encode_quotas
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import Delete, EtcdClient, EtcdError, Op, Put, Txn
from kafscale.storage.keys import Keyspace
from kafscale.store.v1 import store_pb2
from kafscale.testkit.proxy import FaultProxy

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = Principal("User:alice")
HOST = "10.0.0.1"
READ = AclBinding(
    resource_type=ResourceType.TOPIC,
    pattern_type=PatternType.LITERAL,
    resource_name="orders",
    principal=ALICE,
    host="*",
    operation=Operation.READ,
    permission=Permission.ALLOW,
)
USER = QuotaEntity(user="alice")
RATE = QuotaKey.PRODUCER_BYTE_RATE
CREDENTIAL = credential_of_password(SHA_256, "secret", salt=b"salt")
WAIT_S = 10.0


class Store:
    """Writes as the services do, and as an accident does."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self.etcd = etcd
        self.keyspace = keyspace
        self.keys = AccessKeys(keyspace)

    async def write(self, marker: bytes, *ops: Op) -> int:
        return (await self.etcd.txn(Txn(success=(*ops, Put(marker, b""))))).revision

    async def add(self, acl: AclBinding) -> int:
        return await self.write(self.keys.acls, Put(self.keys.acl(acl), encode_acl(acl)))

    async def remove(self, acl: AclBinding) -> int:
        return await self.write(self.keys.acls, Delete(self.keys.acl(acl)))

    async def limit(self, entity: QuotaEntity, **values: float) -> int:
        stored = encode_quotas({QuotaKey(name): value for name, value in values.items()})
        return await self.write(self.keys.quotas, Put(self.keys.quota(entity), stored))

    async def add_user(self, name: str, mechanism: ScramMechanism = SHA_256) -> int:
        credential = credential_of_password(mechanism, "secret", salt=b"salt")
        return await self.write(
            self.keys.users, Put(self.keys.user(name, mechanism), encode_credential(credential))
        )

    async def damage(self, key: bytes, value: bytes = b"\xff\xff") -> int:
        return (await self.etcd.put(key, value)).revision


@pytest.fixture
def store(etcd: EtcdClient, keyspace: Keyspace) -> Store:
    return Store(etcd, keyspace)


@asynccontextmanager
async def running(view: AccessView) -> AsyncIterator[AccessView]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(view.run())
        async with asyncio.timeout(WAIT_S):
            await view.loaded()
        yield view
        task.cancel()


@asynccontextmanager
async def viewing(store: Store, *, acls_only: bool = False) -> AsyncIterator[AccessView]:
    async with running(AccessView(store.etcd, store.keyspace, acls_only=acls_only)) as view:
        yield view


async def seen(view: AccessView, name: str, revision: int) -> None:
    assert await view.views[name].wait_revision(revision, WAIT_S)


def allowed(view: AccessView, operation: Operation = Operation.READ, topic: str = "orders") -> bool:
    open_to_all = Authorizer(view.acls, allow_everyone_if_no_acl_found=True)
    return open_to_all.rights(ALICE, HOST).allows(operation, ResourceType.TOPIC, topic)


async def test_the_view_has_what_was_there_and_what_comes(store: Store) -> None:
    write = replace(READ, operation=Operation.WRITE)
    await store.add(READ)
    await store.limit(USER, producer_byte_rate=100.0, consumer_byte_rate=7.0)
    await store.add_user("alice")
    async with viewing(store) as view:
        await view.ready()
        assert list(view.acls) == [READ]
        limit = view.quotas.limit(RATE, "alice", "app")
        assert limit is not None
        assert limit.value == 100.0
        found = view.credential("alice", SHA_256)
        assert found is not None
        assert found.credential == CREDENTIAL
        assert view.credential("alice", SHA_512) is None
        await store.add(write)
        await store.remove(READ)
        await store.limit(USER, producer_byte_rate=200.0)
        rewritten = await store.add_user("alice")
        await store.add_user("bob", SHA_512)
        await view.confirm()
        assert list(view.acls) == [write]
        assert dict(view.stored_acls) == {store.keys.acl(write): write}
        assert dict(view.stored_quotas()) == {USER: {RATE: 200.0}}
        assert view.quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, "alice", "app") is None
        again = view.credential("alice", SHA_256)
        assert again is not None
        assert (again.revision, found.revision < again.revision) == (rewritten, True)
        assert {name: list(of_user) for name, of_user in view.users.items()} == {
            "alice": [SHA_256],
            "bob": [SHA_512],
        }


async def test_each_change_moves_the_generation_and_nothing_else_does(store: Store) -> None:
    async with viewing(store) as view:
        for change in (
            store.add(READ),
            store.limit(USER, producer_byte_rate=1.0),
            store.add_user("alice"),
            store.remove(READ),
        ):
            before = view.generation
            await change
            await view.confirm()
            assert view.generation > before
        before = view.generation
        await store.limit(USER, producer_byte_rate=1.0)
        await store.etcd.put(store.keyspace.cluster(), b"of another family")
        await view.confirm()
        assert view.generation == before


async def test_the_forms_of_credentials_follow_the_users(store: Store) -> None:
    form = form_of(CREDENTIAL)
    assert AccessView(store.etcd, store.keyspace).forms(SHA_256) == USUAL
    await store.add_user("alice")
    async with viewing(store) as view:
        assert view.forms(SHA_256) == ((form, 1),)
        assert view.forms(SHA_512) == USUAL
        again = await store.add_user("alice")
        await seen(view, "users", again)
        assert view.forms(SHA_256) == ((form, 1),)
        user = store.keys.user("alice", SHA_256)
        await seen(view, "users", await store.write(store.keys.users, Delete(user)))
        assert view.forms(SHA_256) == USUAL


async def test_a_service_that_checks_acls_alone_reads_no_user(store: Store) -> None:
    await store.add(READ)
    await store.add_user("alice")
    await store.limit(USER, producer_byte_rate=1.0)
    async with viewing(store, acls_only=True) as view:
        await view.ready()
        await view.confirm()
        assert list(view.views) == ["acls"]
        assert list(view.acls) == [READ]
        assert view.users == {}
        assert view.quotas.limit(RATE, "alice", "app") is None


@pytest.mark.parametrize("family", ["acl", "quota", "user"])
async def test_a_record_that_cannot_be_read_at_the_start_keeps_the_view_from_being_ready(
    store: Store, family: str
) -> None:
    key = {
        "acl": store.keys.acl(READ),
        "quota": store.keys.quota(USER),
        "user": store.keys.user("alice", SHA_256),
    }[family]
    await store.damage(key)
    async with viewing(store) as view, asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(view.ready())
        await view.confirm()
        assert not ready.done()
        assert view.damaged() == [key]
        await store.etcd.delete(key)
        async with asyncio.timeout(WAIT_S):
            await ready
        assert view.damaged() == []


async def test_every_damaged_record_has_to_be_repaired(store: Store) -> None:
    user, acl = store.keys.user("alice", SHA_256), store.keys.acl(READ)
    await store.damage(user)
    await store.damage(acl)
    async with viewing(store) as view, asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(view.ready())
        await seen(view, "acls", await store.add(READ))
        await view.confirm()
        assert not ready.done()
        assert view.damaged() == [user]
        await store.add_user("alice")
        async with asyncio.timeout(WAIT_S):
            await ready
        assert view.credential("alice", SHA_256) is not None


@pytest.mark.parametrize("permission", [Permission.ALLOW, Permission.DENY])
async def test_a_damaged_acl_denies_its_principal_its_resource_until_it_is_repaired(
    store: Store, permission: Permission
) -> None:
    stored = replace(READ, permission=permission)
    await store.add(stored)
    async with viewing(store) as view:
        key = store.keys.acl(stored)
        await seen(view, "acls", await store.damage(key))
        assert [allowed(view, each) for each in (Operation.READ, Operation.WRITE)] == [False, False]
        assert allowed(view, topic="bills")
        assert dict(view.stored_acls) == {}
        await seen(view, "acls", await store.damage(key, b"\xfe"))
        assert not allowed(view)
        await seen(view, "acls", await store.add(stored))
        assert allowed(view) is (permission is Permission.ALLOW)
        assert list(view.acls) == [stored]
        await seen(view, "acls", await store.damage(key))
        await seen(view, "acls", await store.remove(stored))
        assert allowed(view)
        assert list(view.acls) == []


async def test_an_acl_of_a_newer_version_denies_what_it_names(store: Store) -> None:
    record = store_pb2.Acl.FromString(encode_acl(READ))
    record.schema = 2
    async with viewing(store) as view:
        await seen(view, "acls", await store.damage(store.keys.acl(READ), record.SerializeToString()))
        assert not allowed(view)
        assert allowed(view, topic="bills")


async def test_a_record_that_names_nothing_changes_nothing(store: Store) -> None:
    await store.add(READ)
    async with viewing(store) as view:
        before = view.generation
        await seen(view, "acls", await store.damage(store.keys.acls + b"nonsense"))
        assert (allowed(view), view.generation) == (True, before)
        assert view.damaged() == [store.keys.acls + b"nonsense"]


async def test_a_denial_for_damage_does_not_take_an_equal_stored_acl_with_it(store: Store) -> None:
    equal = denial_of(READ)
    await store.add(equal)
    await store.add(READ)
    async with viewing(store) as view:
        await seen(view, "acls", await store.damage(store.keys.acl(READ)))
        await seen(view, "acls", await store.remove(READ))
        assert list(view.acls) == [equal]
        assert not allowed(view)


async def test_a_damaged_credential_lets_nobody_log_in_and_hides_no_other(store: Store) -> None:
    await store.add_user("alice", SHA_256)
    await store.add_user("alice", SHA_512)
    async with viewing(store) as view:
        before = view.generation
        await seen(view, "users", await store.damage(store.keys.user("alice", SHA_256)))
        assert view.credential("alice", SHA_256) is None
        assert view.credential("alice", SHA_512) is not None
        assert view.generation > before


async def test_a_damaged_quota_keeps_its_last_values_until_it_is_deleted(store: Store) -> None:
    await store.limit(USER, producer_byte_rate=100.0)
    async with viewing(store) as view:
        key = store.keys.quota(USER)
        await seen(view, "quotas", await store.damage(key))
        kept = view.quotas.limit(RATE, "alice", "app")
        assert kept is not None
        assert kept.value == 100.0
        await seen(view, "quotas", (await store.etcd.delete(key)).revision)
        assert view.quotas.limit(RATE, "alice", "app") is None


async def test_confirm_reads_again_what_the_watch_has_not_delivered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with viewing(store) as view:
        monkeypatch.setattr(view.views["acls"], "_apply", lambda batch: None)
        await store.add(READ)
        await view.confirm()
        assert list(view.acls) == [READ]


async def test_the_age_is_short_while_etcd_answers_and_grows_while_it_does_not(
    etcd_server: EtcdProcess, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_view, "CONFIRM_EVERY_S", 0.2)
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy:
        etcd = EtcdClient.connect([proxy.address])
        try:
            async with running(AccessView(etcd, keyspace)) as view:
                async with asyncio.timeout(WAIT_S):  # it grows, until the view confirms itself
                    while view.age_s() < 0.1:
                        await asyncio.sleep(0.01)
                    while view.age_s() > 0.1:
                        await asyncio.sleep(0.01)
                proxy.refuse()
                proxy.reset_all()
                with pytest.raises(EtcdError):  # afterwards no earlier confirmation is on its way
                    await view.confirm()
                young, began_s = view.age_s(), time.monotonic()
                with pytest.raises(EtcdError):
                    await view.confirm()
                assert view.age_s() >= young + (time.monotonic() - began_s) - 0.01
        finally:
            await etcd.close()
