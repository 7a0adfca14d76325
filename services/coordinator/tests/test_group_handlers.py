"""Each handler's answer in the shape of each version, its errors as well; of offsets in test_offset_handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    sync_group,
)
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_describe as consumer_describe_schema
from kafscale.wire.schema import consumer_group_heartbeat as consumer_schema
from kafscale.wire.schema import delete_groups as delete_schema
from kafscale.wire.schema import describe_groups as describe_schema
from kafscale.wire.schema import heartbeat as heartbeat_schema
from kafscale.wire.schema import join_group as join_schema
from kafscale.wire.schema import leave_group as leave_schema
from kafscale.wire.schema import list_groups as list_schema
from kafscale.wire.schema import offset_commit as commit_schema
from kafscale.wire.schema import sync_group as sync_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, turns
from services.coordinator.tests.test_group_actor import consumer_beat, stable
from services.coordinator.tests.test_offset_handlers import commit_request, fetch

NOT_ASKED = -(1 << 31)


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


@pytest.mark.parametrize("version", range(10))
async def test_join_and_sync_in_every_version(one: Coordinator, version: int) -> None:
    request = join_schema.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[join_schema.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await one.ask(join_group, join_schema, request, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = joined.member_id
        joined = await one.ask(join_group, join_schema, request, version)
    assert (joined.error_code, joined.protocol_name, joined.leader) == (0, "range", joined.member_id)
    assert [member.metadata for member in joined.members] == [b"m"]
    syncing = sync_schema.SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[sync_schema.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")],
    )
    synced = await one.ask(sync_group, sync_schema, syncing, min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, b"a")
    wrong = await one.ask(join_group, join_schema, _of_another_type(request), version)
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = sync_schema.SyncGroupRequest(group_id="g", generation_id=1, member_id="x")
    assert (await one.ask(sync_group, sync_schema, stranger, 0)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request.group_id = ""
    nameless = await one.ask(join_group, join_schema, request, version)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def _of_another_type(request: Any) -> Any:
    return join_schema.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=request.member_id,
        protocol_type="connect",
        protocols=request.protocols,
    )


@pytest.mark.parametrize("version", range(6))
async def test_leaving_in_every_version(one: Coordinator, version: int) -> None:
    member_id = await stable(one)
    members = [leave_schema.LeaveGroupRequestMemberIdentity(member_id=each) for each in (member_id, "x")]
    request = leave_schema.LeaveGroupRequest(group_id="g", member_id=member_id, members=members)
    answer = await one.ask(leave_group, leave_schema, request, version)
    assert answer.error_code == 0
    if version >= 3:
        errors = [each.error_code for each in answer.members]
        assert errors == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        again = await one.ask(leave_group, leave_schema, request, version)
        assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_while_a_slot_is_read_each_call_of_a_member_gets_an_error_that_clients_know_there(
    one: Coordinator,
) -> None:
    held = one.parts.slots.held(slot_of("g"))
    assert held is not None
    held.loaded = False
    joining = join_schema.JoinGroupRequest(group_id="g", session_timeout_ms=30_000)
    joined = await one.ask(join_group, join_schema, joining, 9)
    assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    syncing = sync_schema.SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert (await one.ask(sync_group, sync_schema, syncing, 5)).error_code == ErrorCode.NOT_COORDINATOR
    beat = heartbeat_schema.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await one.ask(heartbeat, heartbeat_schema, beat, 4)).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(5))
async def test_heartbeats_in_every_version(one: Coordinator, version: int) -> None:
    member_id = await stable(one)
    for group, generation, error in (
        ("g", 1, 0),
        ("g", 2, ErrorCode.ILLEGAL_GENERATION),
        ("unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.INVALID_GROUP_ID),
    ):
        request = heartbeat_schema.HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id
        )
        assert (await one.ask(heartbeat, heartbeat_schema, request, version)).error_code == error


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(one: Coordinator, version: int) -> None:
    member_id = await stable(one)
    request = describe_schema.DescribeGroupsRequest(groups=["g", "unknown"])
    answer = await one.ask(describe_groups, describe_schema, request, version)
    known, unknown = answer.groups
    assert (known.error_code, known.group_state, known.protocol_data) == (0, "Stable", "range")
    assert [(m.member_id, m.client_host, m.member_assignment) for m in known.members] == [
        (member_id, "/127.0.0.1", b"a")
    ]
    told = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert (unknown.error_code, unknown.group_state) == (told, "Dead")


async def test_the_text_for_a_kip_848_group_is_not_that_it_is_gone(one: Coordinator) -> None:
    beat = consumer_schema.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    answered = await one.ask(consumer_group_heartbeat, consumer_schema, beat, 1)
    assert answered.error_code == 0
    request = describe_schema.DescribeGroupsRequest(groups=["g", "unknown"])
    groups = (await one.ask(describe_groups, describe_schema, request, 6)).groups
    assert [(each.error_code, each.error_message) for each in groups] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found."),
    ]


async def test_a_heartbeat_without_a_group_or_to_a_classic_group_says_so_and_names_no_member(
    one: Coordinator,
) -> None:
    await stable(one)
    for group, error in (("", ErrorCode.INVALID_REQUEST), ("g", ErrorCode.GROUP_ID_NOT_FOUND)):
        beat = consumer_schema.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[],
            topic_partitions=[],
        )
        answered = await one.ask(consumer_group_heartbeat, consumer_schema, beat, 1)
        assert (answered.error_code, answered.member_id) == (error, None)
        assert answered.error_message


@pytest.mark.parametrize("version", range(3, 7))
async def test_all_operations_of_a_group_are_authorized_for_who_asks(one: Coordinator, version: int) -> None:
    """Read, Delete, Describe, DescribeConfigs and AlterConfigs: what Kafka knows of groups."""
    await stable(one)
    request = describe_schema.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    answer = await one.ask(describe_groups, describe_schema, request, version)
    assert answer.groups[0].authorized_operations == 0b1101_0100_1000
    request.include_authorized_operations = False
    answer = await one.ask(describe_groups, describe_schema, request, version)
    assert answer.groups[0].authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(2))
async def test_all_operations_of_a_consumer_group_are_authorized_for_who_asks(
    one: Coordinator, version: int
) -> None:
    await consumer_beat(one, 0)
    request = consumer_describe_schema.ConsumerGroupDescribeRequest(
        group_ids=["g", "unknown"], include_authorized_operations=True
    )
    answer = await one.ask(consumer_group_describe, consumer_describe_schema, request, version)
    assert [group.authorized_operations for group in answer.groups] == [0b1101_0100_1000, NOT_ASKED]
    request.include_authorized_operations = False
    answer = await one.ask(consumer_group_describe, consumer_describe_schema, request, version)
    assert answer.groups[0].authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(one: Coordinator, version: int) -> None:
    await stable(one)
    await consumer_beat(one, 0, group="h")
    request = list_schema.ListGroupsRequest()
    answer = await one.ask(list_groups, list_schema, request, version)
    assert sorted(group.group_id for group in answer.groups) == ["g", "h"]
    if version >= 4:
        request.states_filter = ["stable"]
        request.types_filter = ["CLASSIC"] if version >= 5 else []
        answer = await one.ask(list_groups, list_schema, request, version)
        assert "g" in [group.group_id for group in answer.groups]
    if version >= 5:
        assert [(group.group_id, group.group_type) for group in answer.groups] == [("g", "classic")]
    one.fresh = False
    answer = await one.ask(list_groups, list_schema, request, version)
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_in_every_version(one: Coordinator, version: int) -> None:
    await one.ask(offset_commit, commit_schema, commit_request("empty"), 8)
    await stable(one)
    request = delete_schema.DeleteGroupsRequest(groups_names=["empty", "g", "unknown"])
    answer = await one.ask(delete_groups, delete_schema, request, version)
    assert [each.error_code for each in answer.results] == [
        0,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    _, partitions = await fetch(one, 8, group="empty")
    assert partitions[0].committed_offset == -1


async def test_a_group_that_gets_a_member_during_its_deletion_keeps_its_offsets(one: Coordinator) -> None:
    await one.ask(offset_commit, commit_schema, commit_request(), 8)
    one.door.gate.clear()
    joining = asyncio.ensure_future(stable(one))
    await turns()
    request = delete_schema.DeleteGroupsRequest(groups_names=["g"])
    deleting = asyncio.ensure_future(one.ask(delete_groups, delete_schema, request, 2))
    await turns()
    one.door.gate.set()
    await joining
    assert (await deleting).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == 7


@pytest.mark.parametrize("is_classic", [True, False])
async def test_a_commit_that_crosses_the_deletion_of_its_group_goes_with_it_or_makes_it_anew(
    one: Coordinator, is_classic: bool
) -> None:
    if is_classic:
        await one.ask(offset_commit, commit_schema, commit_request(), 8)
    else:
        await consumer_beat(one, 0)
        await consumer_beat(one, -1)
    deletion = delete_schema.DeleteGroupsRequest(groups_names=["g"])
    one.door.gate.clear()
    asked = [
        asyncio.ensure_future(one.ask(offset_commit, commit_schema, commit_request(), 8)),
        asyncio.ensure_future(one.ask(delete_groups, delete_schema, deletion, 2)),
        asyncio.ensure_future(one.ask(offset_commit, commit_schema, commit_request(offset=9), 8)),
    ]
    await turns()
    one.door.gate.set()
    first, deleted, second = await asyncio.gather(*asked)
    assert deleted.results[0].error_code == 0
    assert {a.topics[0].partitions[0].error_code for a in (first, second)} == {0}
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == 9
    actor = one.actor("g")
    assert actor.type.exists(actor.group)


@pytest.mark.parametrize("version", range(2))
async def test_a_consumer_group_is_joined_and_described(one: Coordinator, version: int) -> None:
    request = consumer_schema.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m" if version else "",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = await one.ask(consumer_group_heartbeat, consumer_schema, request, version)
    assert answer.error_code == 0
    assert len(answer.assignment.topic_partitions[0].partitions) == 500
    asking = consumer_describe_schema.ConsumerGroupDescribeRequest(group_ids=["g", "unknown"])
    described = await one.ask(consumer_group_describe, consumer_describe_schema, asking, version)
    known, unknown = described.groups
    assert (known.error_code, known.group_state) == (0, "Stable")
    assert [member.member_id for member in known.members] == [answer.member_id]
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
