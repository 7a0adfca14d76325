"""A front door's copy of users and ACLs: answers that wait for a change, and what a copy that is too old ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from door_fakes import Sent
from door_harness import Cluster, settled, until
from kafscale.frontdoor import access as door_access
from kafscale.frontdoor.access import DoorAccess
from kafscale.frontdoor.api import Backend, Forward
from kafscale.frontdoor.apis import SERVED
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import create_acls, describe_acls, metadata

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
async def door(*, decides: bool = True, **settings: int) -> AsyncIterator[Door]:
    copy = FakeCopy()
    access = DoorAccess(copy=copy, stale_ms=STALE_MS, decides=decides)
    async with Cluster.running(access=access, **settings) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        yield Door(cluster, copy)


CREATE = b"".join(map(bytes, create_acls.encode_request(create_acls.CreateAclsRequest(), 3)))
DESCRIBE = b"".join(map(bytes, describe_acls.encode_request(describe_acls.DescribeAclsRequest(), 3)))
METADATA = b"".join(map(bytes, metadata.encode_request(metadata.MetadataRequest(topics=[]), 12)))


def test_the_calls_that_change_users_or_acls_wait_and_no_others() -> None:
    waiting = {
        key
        for key, api in SERVED.items()
        if isinstance(api.dispatch, Forward) and api.dispatch.changes_access
    }
    assert waiting == {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}


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
    async with door(frontdoor_request_timeout_ms=1_000) as one:
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
