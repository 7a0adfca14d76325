"""A service starts only if each API has its row in the rules; with an authorizer, those that ask watch the ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import pytest
from kafscale.access import rules
from kafscale.access.rules import ROWS, NotEnforced
from kafscale.admin import server as admin
from kafscale.admin.settings import AdminSettings
from kafscale.coordinator import server as coordinator
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.fetch import server as fetch
from kafscale.fetch.settings import FetchSettings
from kafscale.frontdoor import authorization
from kafscale.frontdoor import server as frontdoor
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.produce import server as produce
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import Runtime, ServiceParts
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Registration
from kafscale.storage.objects import MemoryStore
from kafscale.wire.apis import ApiKey

Build = Callable[[Runtime[Any]], AbstractAsyncContextManager[ServiceParts]]
SERVICES: dict[str, tuple[Build, type[ServiceSettings], ApiKey]] = {
    "admin": (admin.build, AdminSettings, ApiKey.DESCRIBE_CLUSTER),
    "coordinator": (coordinator.build, CoordinatorSettings, ApiKey.HEARTBEAT),
    "fetch": (fetch.build, FetchSettings, ApiKey.LIST_OFFSETS),
    "produce": (produce.build, ProduceSettings, ApiKey.DESCRIBE_PRODUCERS),
    "frontdoor": (
        lambda runtime: frontdoor.build(runtime, doors=(), tls={}),
        FrontdoorSettings,
        ApiKey.METADATA,
    ),
}


EVERYTHING = {"acls", "quotas", "users"}
WATCHED: dict[str, set[str]] = {
    "admin": EVERYTHING,
    "coordinator": {"acls"},
    "fetch": {"acls"},
    "produce": set(),
    "frontdoor": EVERYTHING,
}
WAIT_S = 10.0


class _Ended(Exception):
    """Ends the tasks of a service that was built."""


async def begin(
    role: str, etcd: EtcdClient, keyspace: Keyspace, authorizer: Literal["none", "acl"] = "none"
) -> Runtime[Any]:
    """Builds the service as its process does, waits until it can decide, and ends it."""
    build, settings, _ = SERVICES[role]
    registration = await Registration.join(etcd, keyspace, role=role, address="127.0.0.1:1", node_id=1)
    try:
        async with asyncio.TaskGroup() as tasks:
            runtime = Runtime(
                role=role,
                settings=settings(authorizer=authorizer),
                etcd=etcd,
                keyspace=keyspace,
                store=MemoryStore(),
                registration=registration,
                metrics=Metrics(role),
                task_group=tasks,
                clock=SystemClock(),
                watch=LoopWatch(SystemClock()),
            )
            async with build(runtime), asyncio.timeout(WAIT_S):
                await runtime.access_ready()
            raise _Ended
    except* _Ended:
        pass
    finally:
        await registration.leave()
    return runtime


@pytest.mark.parametrize("role", SERVICES)
async def test_a_service_starts_only_if_each_of_its_apis_has_a_row(
    role: str, etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(role, etcd, keyspace)
    *_, key = SERVICES[role]
    rest = {other: needs for other, needs in ROWS.items() if other is not key}
    monkeypatch.setattr(rules, "ROWS", rest)
    monkeypatch.setattr(authorization, "ROWS", rest)
    with pytest.raises(ExceptionGroup) as refused:
        await begin(role, etcd, keyspace)
    (error,) = refused.value.exceptions
    assert isinstance(error, NotEnforced)


@pytest.mark.parametrize("role", SERVICES)
async def test_each_service_that_asks_decides_by_the_acls(
    role: str, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """Produce gets only records that the front door has allowed."""
    runtime = await begin(role, etcd, keyspace, "acl")
    assert set(runtime.access.views) == WATCHED[role]
