"""A record that this version cannot read costs its own group or its own offset, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.handlers import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    init_producer_id,
    list_groups,
    offset_commit,
    offset_delete,
)
from kafscale.storage.consumer_groups import Part, PartKind, part_key
from kafscale.storage.coordination import Grounds, decode_owner, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import (
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    ConsumerGroupMetadata,
    ConsumerMember,
    ConsumerMemberState,
    GroupRecord,
    encode_committed,
    encode_group,
)
from kafscale.storage.keys import Keyspace, SlotId, TopicId
from kafscale.storage.slots import Slot, slot_of
from kafscale.store.v1 import store_pb2 as pb
from kafscale.testkit.old_groups import encode_old_group
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_describe as consumer_describe_schema
from kafscale.wire.schema import delete_groups as delete_schema
from kafscale.wire.schema import describe_groups as describe_schema
from kafscale.wire.schema import init_producer_id as init_schema
from kafscale.wire.schema import list_groups as list_schema
from kafscale.wire.schema import offset_commit as commit_schema
from kafscale.wire.schema import offset_delete as offset_delete_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, until
from services.coordinator.tests.test_group_actor import beat, consumer_beat, join, leave, stable
from services.coordinator.tests.test_group_handlers import commit_request, fetch
from services.coordinator.tests.test_offset_expiration import WEEK_MS, expire_offsets

T = TopicId(b"t".ljust(16, b"."))
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def newer() -> bytes:
    message = pb.GroupState.FromString(encode_group(GroupRecord(group="g", state=ClassicGroup())))
    message.schema = 99
    return message.SerializeToString()


def with_an_unknown_phase() -> bytes:
    message = pb.GroupState.FromString(encode_group(GroupRecord(group="g", state=ClassicGroup())))
    message.classic.phase = 77  # type: ignore[assignment]
    return message.SerializeToString()


def with_an_unknown_assignor() -> bytes:
    member = ConsumerMember(
        id="m",
        member_epoch=1,
        previous_epoch=0,
        state=ConsumerMemberState.STABLE,
        rebalance_timeout_ms=1,
        assignor="clever",
    )
    state = ConsumerGroup(group_epoch=1, assignment_epoch=1, members=(member,))
    return encode_old_group(GroupRecord(group="g", state=state))


def neighbour() -> str:
    """Another group of the same slot as g."""
    return next(name for n in range(10_000) if slot_of(name := f"n{n}") == slot_of("g"))


WITH_KEYS = encode_group(
    GroupRecord(group="g", state=ConsumerGroupMetadata(group_epoch=1, assignment_epoch=1))
)
UNREADABLE = {
    "garbage": b"\xff\xff\xff",
    "of no type": b"\x08\x01",
    "newer": newer(),
    "an unknown phase": with_an_unknown_phase(),
    "an unknown assignor": with_an_unknown_assignor(),
}


@pytest_asyncio.fixture
async def one(
    etcd: EtcdClient, keyspace: Keyspace, request: pytest.FixtureRequest
) -> AsyncIterator[Coordinator]:
    """One whose group g cannot be read, and has an offset."""
    await make_topic(etcd, keyspace)
    record = getattr(request, "param", UNREADABLE["newer"])
    slot = slot_of("g")
    await etcd.put(keyspace.group(slot, "g"), record)
    await etcd.put(
        keyspace.group(slot, neighbour()), encode_group(GroupRecord(group="", state=ClassicGroup()))
    )
    kept = encode_committed(CommittedOffset(offset=7, commit_ms=1))
    await etcd.put(keyspace.committed(slot, "g", T, 0), kept)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


async def error_of(one: Coordinator, api: Any, schema: Any, request: Any, where: str, version: int) -> int:
    answer = await one.ask(api, schema, request, version)
    entry = getattr(answer, where)[0]
    if where == "topics":
        entry = entry.partitions[0]
    error: int = entry.error_code
    return error


@pytest.mark.parametrize("one", UNREADABLE.values(), ids=UNREADABLE.keys(), indirect=True)
async def test_a_group_that_cannot_be_read_is_unavailable_and_its_neighbours_are_served(
    one: Coordinator,
) -> None:
    assert (await join(one)).error_code == UNAVAILABLE
    assert await beat(one, "m") == UNAVAILABLE
    assert await leave(one, "m") == UNAVAILABLE
    assert (await consumer_beat(one, 0)).error_code == UNAVAILABLE
    assert await error_of(one, offset_commit, commit_schema, commit_request(), "topics", 8) == UNAVAILABLE
    await stable(one, neighbour())
    assert one.metric("groups_unreadable") == 1
    assert one.metric("rebalances_total") == 1
    assert (one.metric("groups", "Stable"), one.metric("groups", "Empty")) == (1, 0)


@pytest.mark.parametrize("kind", PartKind)
@pytest.mark.parametrize("one", [WITH_KEYS], indirect=True)
async def test_a_damaged_key_of_a_member_costs_its_group_and_no_other(
    one: Coordinator, kind: PartKind
) -> None:
    assert (await consumer_beat(one, 0)).error_code == 0
    key = part_key(one.keys, one.keys.group(slot_of("g"), "g"), Part(kind, "m"))
    assert await one.etcd.get(key) is not None
    await one.etcd.put(key, b"\xff")
    await one.etcd.put(one.keys.slot_claim(slot_of("g")), encode_owner(Slot(epoch=9, owner="2/x")))
    await until(lambda: one.parts.groups.unreadable_count == 1)  # it is lost, claimed again, and read again
    assert (await consumer_beat(one, 1)).error_code == UNAVAILABLE
    await stable(one, neighbour())
    assert (await one.etcd.get(key)) is not None


async def test_the_offsets_of_a_group_that_cannot_be_read_are_told(one: Coordinator) -> None:
    for version in range(1, 11):
        error, partitions = await fetch(one, version)
        assert error == 0
        assert [(p.committed_offset, p.error_code) for p in partitions.values()] == [(7, 0), (-1, 0)]


async def test_tools_see_a_group_that_cannot_be_read_and_cannot_delete_it(one: Coordinator) -> None:
    listed = await one.ask(list_groups, list_schema, list_schema.ListGroupsRequest(), 5)
    states = {group.group_id: (group.group_state, group.group_type) for group in listed.groups}
    assert states["g"] == ("Unknown", "Unknown")
    assert set(states) == {"g", neighbour()}
    asked = list_schema.ListGroupsRequest(states_filter=["Empty"])
    assert [g.group_id for g in (await one.ask(list_groups, list_schema, asked, 5)).groups] == [neighbour()]
    described = describe_schema.DescribeGroupsRequest(groups=["g"])
    assert await error_of(one, describe_groups, describe_schema, described, "groups", 5) == UNAVAILABLE
    asking = consumer_describe_schema.ConsumerGroupDescribeRequest(group_ids=["g"])
    answer = await one.ask(consumer_group_describe, consumer_describe_schema, asking, 0)
    assert answer.groups[0].error_code == UNAVAILABLE
    deleted = delete_schema.DeleteGroupsRequest(groups_names=["g"])
    assert await error_of(one, delete_groups, delete_schema, deleted, "results", 2) == UNAVAILABLE
    offsets = offset_delete_schema.OffsetDeleteRequest(group_id="g")
    assert (await one.ask(offset_delete, offset_delete_schema, offsets, 0)).error_code == UNAVAILABLE
    assert (await fetch(one, 8))[1][0].committed_offset == 7


async def test_a_record_that_cannot_be_read_is_left_as_it_is_with_its_offsets_and_no_other(
    one: Coordinator,
) -> None:
    key = one.keys.group(slot_of("g"), "g")
    before = await one.etcd.get(key)
    await join(one)
    await one.ask(offset_commit, commit_schema, commit_request(neighbour()), 8)
    await make_topic(one.etcd, one.keys, "new")
    one.clock.later_ms = 2 * WEEK_MS
    await expire_offsets(one)
    assert (await fetch(one, 8, neighbour()))[1][0].committed_offset == -1
    assert await one.etcd.get(key) == before
    assert (await fetch(one, 8))[1][0].committed_offset == 7
    await one.drain()
    assert await one.etcd.get(key) == before
    with pytest.raises(GroupFailed) as failed:
        one.parts.groups.find("g")
    assert failed.value.error is ErrorCode.NOT_COORDINATOR
    assert one.metric("groups_unreadable") == 0


async def test_a_load_says_once_which_group_cannot_be_read_and_why(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    slot = slot_of("g")
    await etcd.put(keyspace.group(slot, "g"), newer())
    await etcd.put(keyspace.groups_prefix(SlotId(slot)) + b"a/b", b"")
    with structlog.testing.capture_logs() as logs:
        async with running(etcd, keyspace) as one:
            await join(one)
            await join(one)
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == 2
    assert [entry["group"] for entry in errors if "group" in entry] == ["g"]
    assert any("schema 99" in entry["why"] for entry in errors)


@pytest.mark.parametrize("value", [b"\xff\xff", pb.CommittedOffset(schema=99).SerializeToString()])
async def test_an_offset_that_cannot_be_read_is_no_missing_offset_and_costs_no_other(
    etcd: EtcdClient, keyspace: Keyspace, value: bytes
) -> None:
    await make_topic(etcd, keyspace)
    slot = slot_of("g")
    stray = keyspace.commits_prefix(slot, "g") + b"stray"
    async with running(etcd, keyspace) as one:
        await one.ask(offset_commit, commit_schema, commit_request(partitions=2), 8)
        await etcd.put(keyspace.committed(slot, "g", T, 1), value)
        await etcd.put(stray, b"")
        with structlog.testing.capture_logs() as logs:
            for version in range(1, 11):
                error, partitions = await fetch(one, version)
                assert error == 0
                assert [(p.committed_offset, p.error_code) for p in partitions.values()] == [
                    (7, 0),
                    (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
                ]
            one.clock.later_ms = 2 * WEEK_MS
            await expire_offsets(one)
        assert len([entry for entry in logs if entry["log_level"] == "error"]) == 2
        assert one.metric("offsets_unreadable_total") > 2
        _, partitions = await fetch(one, 8, every=True)
        assert {index: p.error_code for index, p in partitions.items()} == {
            1: ErrorCode.UNSTABLE_OFFSET_COMMIT
        }
        assert one.parts.groups.find("g") is not None
        await one.ask(offset_commit, commit_schema, commit_request(partitions=2, offset=8), 8)
        assert [p.committed_offset for p in (await fetch(one, 8))[1].values()] == [8, 8]


# -- what groups hang on ----------------------------------------------------------------------------


async def test_a_damaged_slot_is_claimed_anew_and_its_last_owner_is_fenced(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await make_topic(etcd, keyspace)
    slot = slot_of("g")
    async with running(etcd, keyspace) as one:
        await stable(one, "g")
        lost = one.parts.slots.lost_count
        put = await etcd.put(keyspace.slot_claim(slot), b"\xff\xff")
        await until(lambda: (held := one.parts.slots.held(slot)) is not None and held.revision > put.revision)
        assert one.parts.slots.lost_count == lost + 1
        found = await etcd.get(keyspace.slot_claim(slot))
        assert found is not None
        assert decode_owner(found.value).owner == one.instance.id
        await until(lambda: (held := one.parts.slots.held(slot)) is not None and held.loaded)
        assert one.parts.groups.find("g") is not None, "its groups are read again"


async def test_a_slot_of_a_newer_schema_is_left_alone_and_no_other_slot_is_lost(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    slot = slot_of("g")
    newer_slot = pb.Owner(schema=2, epoch=1, owner="9/newer").SerializeToString()
    async with running(etcd, keyspace) as one:
        held = set(one.slots)
        put = await etcd.put(keyspace.slot_claim(slot), newer_slot)
        await until(lambda: one.parts.slots.held(slot) is None)
        one.parts.slots._changed.set()
        assert await one.parts.table.wait_revision(put.revision, 5)
        await one.parts.slots._claim(slot, None, Grounds.FIRST)  # as who has not seen it would
        assert one.slots == held - {slot}
        found = await etcd.get(keyspace.slot_claim(slot))
        assert found is not None
        assert found.value == newer_slot


async def test_offsets_of_a_damaged_topic_are_not_expired_and_no_consumer_is_told_that_it_has_none(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    topic_id = await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as one:
        answer = await one.ask(offset_commit, commit_schema, commit_request(), 8)
        assert answer.topics[0].partitions[0].error_code == 0
        good = await etcd.get(keyspace.topic("t"))
        assert good is not None
        put = await etcd.put(keyspace.topic("t"), b"\xff\xff")
        assert await one.topics.wait_revision(put.revision, 5)
        await one.parts.offset_expiration.slot(one.parts.groups.slot("g"))
        key = keyspace.committed(slot_of("g"), "g", topic_id, 0)
        assert await etcd.get(key) is not None
        for version in range(1, 10):
            error, partitions = await fetch(one, version)
            assert error == 0
            assert {p.error_code for p in partitions.values()} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
        answer = await one.ask(offset_commit, commit_schema, commit_request(), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        put = await etcd.put(keyspace.topic("t"), good.value)
        assert await one.topics.wait_revision(put.revision, 5)
        _, partitions = await fetch(one, 9)
        assert partitions[0].committed_offset == 7


async def test_a_damaged_record_of_producer_ids_is_not_begun_anew(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace) as one:
        await etcd.put(keyspace.pid_next(), b"\xff\xff")
        answer = await one.ask(
            init_producer_id, init_schema, init_schema.InitProducerIdRequest(transactional_id=None), 4
        )
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = await etcd.get(keyspace.pid_next())
        assert found is not None
        assert found.value == b"\xff\xff"
