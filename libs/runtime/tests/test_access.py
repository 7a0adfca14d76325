"""The authorizer of a process: off without the setting, from the stored ACLs with it, and never by half of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafscale.access.acl import AclBinding, Operation, ResourceType
from kafscale.access.principals import Principal
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import Runtime
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.access_keys import AccessKeys, Change, change_txn
from kafscale.storage.access_records import encode_acl
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.testkit.acls import ALICE, HOST, acl

READ = acl("TOPIC:LITERAL:orders READ")
WAIT_S = 10.0


class _Ended(Exception):
    """Ends the tasks of a process."""


@asynccontextmanager
async def process(
    etcd: EtcdClient, keyspace: Keyspace, role: str = "fetch", /, **settings: Any
) -> AsyncIterator[Runtime[ServiceSettings]]:
    """What a service gets; nothing here uses the store or the registration."""
    unused: Any = None
    try:
        async with asyncio.TaskGroup() as tasks:
            runtime = Runtime(
                role=role,
                settings=ServiceSettings(**settings),
                etcd=etcd,
                keyspace=keyspace,
                store=unused,
                registration=unused,
                metrics=Metrics(role),
                task_group=tasks,
                clock=SystemClock(),
                watch=LoopWatch(SystemClock()),
            )
            yield runtime
            raise _Ended
    except* _Ended:
        pass


async def write(etcd: EtcdClient, keys: AccessKeys, stored: AclBinding, value: bytes | None) -> None:
    found = await etcd.range(keys.acl(stored))
    seen = found.kvs[0].mod_revision if found.kvs else 0
    assert (await etcd.txn(change_txn(keys.acls, [Change(keys.acl(stored), seen, value)]))).succeeded


def allows(runtime: Runtime[ServiceSettings], principal: Principal, name: str) -> bool:
    decides = runtime.authorization.authorizer
    assert decides is not None
    return decides.explain(principal, HOST, Operation.READ, ResourceType.TOPIC, name).allowed


def ages(runtime: Runtime[ServiceSettings]) -> list[float]:
    """The samples of the metric, which exists in any case."""
    (found,) = [r for r in runtime.metrics.read() if r.name == "kafscale_fetch_access_view_age_seconds"]
    return [float(value) for _, value in found.values]  # type: ignore[arg-type]


async def test_without_the_setting_a_process_asks_nobody_and_watches_nothing(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with process(etcd, keyspace) as runtime:
        assert runtime.authorization.authorizer is None
        await runtime.access_ready()
        assert runtime.access.views == {}
        assert ages(runtime) == []


async def test_stored_acls_decide_super_users_and_the_default_are_those_of_the_settings(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    admin = Principal("User:admin")
    settings = {"super_users": "User:admin", "allow_everyone_if_no_acl_found": True}
    async with process(etcd, keyspace, authorizer="acl", **settings) as runtime:
        await write(etcd, AccessKeys(keyspace), READ, encode_acl(READ))
        assert runtime.authorization.authorizer is not None
        async with asyncio.timeout(WAIT_S):
            await runtime.access_ready()
        assert allows(runtime, ALICE, "orders")
        assert not allows(runtime, Principal("User:bob"), "orders")
        assert allows(runtime, admin, "orders")
        assert allows(runtime, Principal("User:bob"), "bills")
        (age,) = ages(runtime)
        assert 0 <= age < WAIT_S


async def test_a_process_is_not_ready_while_an_acl_cannot_be_read(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    keys = AccessKeys(keyspace)
    await write(etcd, keys, READ, b"\xff")
    async with process(etcd, keyspace, authorizer="acl") as runtime:
        assert runtime.authorization.authorizer is not None
        ready = asyncio.ensure_future(runtime.access_ready())
        async with asyncio.timeout(WAIT_S):
            await runtime.access.view.loaded()
            assert not ready.done()
            await write(etcd, keys, READ, None)
            await ready


@pytest.mark.parametrize(
    ("role", "views"),
    [("fetch", {"acls"}), ("coordinator", {"acls"}), ("admin", {"acls", "quotas", "users"})],
)
async def test_only_admins_and_front_doors_watch_users(
    role: str, views: set[str], etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with process(etcd, keyspace, role, authorizer="acl") as runtime:
        assert runtime.authorization.authorizer is not None
        assert set(runtime.access.views) == views
