"""When etcd is nearly full: no new group, then no metadata, then no offset; heads and leases keep the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from kafscale.coordinator.handlers import consumer_group_heartbeat, join_group, offset_commit
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.storage.etcd.client import EtcdClient, EtcdStatus
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat as heartbeat_schema
from kafscale.wire.schema import join_group as join_schema
from kafscale.wire.schema import offset_commit as commit_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running
from services.coordinator.tests.test_offset_handlers import commit_request

NONE, REFUSED = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
QUOTA = 1 << 30


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


async def fill(one: Coordinator, share: float) -> None:
    """etcd says that so much of it is in use, from now on."""
    told = EtcdStatus(
        version="3.6.0",
        db_bytes=QUOTA,
        db_bytes_in_use=int(share * QUOTA),
        quota_bytes=QUOTA,
        is_leader=True,
        errors=(),
    )

    async def status() -> EtcdStatus:
        return told

    one.door.status = status  # type: ignore[attr-defined]
    await one.parts.space.look()


async def commit(one: Coordinator, group: str, metadata: str = "m") -> int:
    request = commit_request(group)
    request.topics[0].partitions[0].committed_metadata = metadata
    answer = await one.ask(offset_commit, commit_schema, request, 8)
    error: int = answer.topics[0].partitions[0].error_code
    return error


async def join(one: Coordinator, group: str) -> int:
    protocol = join_schema.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_schema.JoinGroupRequest(
        group_id=group, protocol_type="consumer", protocols=[protocol], session_timeout_ms=10_000
    )
    error: int = (await one.ask(join_group, join_schema, request, 5)).error_code
    return error


async def beat(
    one: Coordinator, group: str, epoch: int = 0, member: str = ""
) -> heartbeat_schema.ConsumerGroupHeartbeatResponse:
    request = heartbeat_schema.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    answer: heartbeat_schema.ConsumerGroupHeartbeatResponse = await one.ask(
        consumer_group_heartbeat, heartbeat_schema, request, 0
    )
    return answer


async def test_past_60_percent_no_group_is_made_and_those_that_are_there_commit_on(one: Coordinator) -> None:
    assert await commit(one, "old") == NONE
    await fill(one, 0.61)
    assert await commit(one, "new") == REFUSED
    assert await join(one, "new") == REFUSED
    assert (await beat(one, "new")).error_code == REFUSED
    assert one.parts.groups.find("new") is None
    assert await commit(one, "old") == NONE
    assert await commit(one, "old", "m" * 4_000) == REFUSED, "metadata is what fills it fastest"
    await fill(one, 0.50)
    assert await commit(one, "old", "m" * 4_000) == NONE
    assert await commit(one, "new") == NONE


async def test_past_75_percent_no_offset_and_no_member_is_taken_and_heartbeats_are(one: Coordinator) -> None:
    assert await commit(one, "old") == NONE
    member = await beat(one, "fleet")
    assert member.error_code == NONE
    await fill(one, 0.76)
    assert await commit(one, "old") == REFUSED
    assert await join(one, "old") == REFUSED
    assert (await beat(one, "fleet")).error_code == REFUSED
    assert (await beat(one, "fleet", member.member_epoch, member.member_id)).error_code == NONE
    assert one.parts.space.refusals == 3


async def test_a_coordinator_makes_no_more_groups_than_it_may(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace, settings=CoordinatorSettings(groups_max=2)) as one:
        assert [await commit(one, group) for group in ("a", "b", "c")] == [NONE, NONE, REFUSED]
        assert (await beat(one, "d")).error_code == REFUSED
        assert await commit(one, "a") == NONE
