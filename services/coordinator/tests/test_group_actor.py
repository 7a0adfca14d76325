"""The actor: persist, then reply; one write for all that waited; and an end that everybody hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
import pytest_asyncio
from kafscale.coordinator.classic.machine import durable
from kafscale.coordinator.classic.model import Generation, Heartbeat, MemberId, Phase, Tick, Token
from kafscale.coordinator.consumer.machine import durable as durable_consumers
from kafscale.coordinator.groups import group_txns
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.handlers import (
    consumer_group_heartbeat,
    delete_groups,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from kafscale.storage.consumer_groups import stored_groups
from kafscale.storage.coordination import encode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, EtcdUnknown, UnknownKind
from kafscale.storage.groups import ClassicGroup, ClassicPhase, ConsumerGroup, GroupState
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import Slot, slot_of
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat as consumer_schema
from kafscale.wire.schema import delete_groups as delete_schema
from kafscale.wire.schema import heartbeat as heartbeat_schema
from kafscale.wire.schema import join_group as join_schema
from kafscale.wire.schema import leave_group as leave_schema
from kafscale.wire.schema import sync_group as sync_schema

from services.coordinator.tests.shell_harness import (
    Coordinator,
    known_topic,
    make_topic,
    running,
    turns,
    until,
)

UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
SESSION_S = 30  # of classic members here
CONSUMER_SESSION_S = 45
TOO_LARGE = EtcdRejected(grpc.StatusCode.INVALID_ARGUMENT, "request is too large")


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


def join(one: Coordinator, group: str = "g", member_id: str = "", **more: Any) -> Any:
    request = join_schema.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[join_schema.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        **more,
    )
    return one.ask(join_group, join_schema, request, 3)


async def stable(one: Coordinator, group: str = "g") -> str:
    """The id of the one member of a stable group."""
    joined = await join(one, group)
    request = sync_schema.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[sync_schema.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")],
    )
    synced = await one.ask(sync_group, sync_schema, request, 3)
    assert (joined.error_code, synced.error_code, synced.assignment) == (0, 0, b"a")
    member_id: str = joined.member_id
    return member_id


async def beat(one: Coordinator, member_id: str, group: str = "g", generation: int = 1) -> int:
    request = heartbeat_schema.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    answer = await one.ask(heartbeat, heartbeat_schema, request, 3)
    error: int = answer.error_code
    return error


async def leave(one: Coordinator, member_id: str, group: str = "g") -> int:
    request = leave_schema.LeaveGroupRequest(group_id=group, member_id=member_id)
    error: int = (await one.ask(leave_group, leave_schema, request, 2)).error_code
    return error


async def consumer_beat(one: Coordinator, epoch: int, *, member_id: str = "m", group: str = "g") -> Any:
    request = consumer_schema.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return await one.ask(consumer_group_heartbeat, consumer_schema, request, 1)


async def come_with_much(one: Coordinator, member_id: str) -> int:
    """The error of a member that joins with 250 KiB of names, for which its group's record has to have room."""
    request = consumer_schema.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[f"{number:0249d}" for number in range(1_000)],
        topic_partitions=[],
    )
    answer = await one.ask(consumer_group_heartbeat, consumer_schema, request, 1)
    error: int = answer.error_code
    return error


async def record(one: Coordinator, group: str = "g") -> GroupState | None:
    """The group as the next coordinator would read it."""
    found = await one.etcd.prefix(one.keys.groups_prefix(slot_of(group)))
    stored = stored_groups(one.keys, found.kvs, pytest.fail).get(group)
    return None if stored is None else stored.assembled()


async def test_what_a_reply_claims_is_in_etcd_when_it_comes(one: Coordinator) -> None:
    one.door.gate.clear()
    joining = asyncio.ensure_future(join(one))
    await turns()
    assert not joining.done()
    one.door.gate.set()
    assert (await joining).generation_id == 1
    persisted = await record(one)
    assert persisted is not None
    assert isinstance(persisted.state, ClassicGroup)
    assert (persisted.state.generation, len(persisted.state.members)) == (1, 1)


async def test_a_heartbeat_writes_nothing(one: Coordinator) -> None:
    member_id = await stable(one)
    one.door.sent.clear()
    assert [await beat(one, member_id) for _ in range(20)] == [0] * 20
    assert not one.door.sent


async def test_what_comes_during_a_write_is_stepped_together(one: Coordinator) -> None:
    await known_topic(one, partitions=50)
    one.door.sent.clear()
    one.door.gate.clear()
    first = asyncio.ensure_future(consumer_beat(one, 0))
    await turns()
    others = [asyncio.ensure_future(consumer_beat(one, 0, member_id=f"m{n}")) for n in range(20)]
    await turns()
    one.door.gate.set()
    answers = await asyncio.gather(first, *others)
    assert {answer.error_code for answer in answers} == {0}
    assert len(one.door.sent) == 2


async def test_a_lost_slot_ends_everyone_who_waits_with_not_coordinator(one: Coordinator) -> None:
    member_id = await stable(one)
    parked = asyncio.ensure_future(join(one))  # waits for the first member
    await until(lambda: one.actor("g").group.phase is Phase.PREPARING_REBALANCE)
    slot = slot_of("g")
    await one.etcd.put(one.keys.slot_claim(slot), encode_owner(Slot(epoch=9, owner="2/x")))
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    await one.has(64)  # that owner does not live
    assert await beat(one, member_id) == ErrorCode.REBALANCE_IN_PROGRESS  # read back, and half made


async def test_a_write_under_a_claim_that_is_gone_is_refused_and_nothing_is_told(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    held.revision -= 1  # as if another had claimed it and nobody had seen it yet
    assert (await join(one)).error_code == ErrorCode.NOT_COORDINATOR
    assert await record(one) is None


async def test_a_join_whose_client_has_gone_is_forgotten(one: Coordinator) -> None:
    await stable(one)
    parked = asyncio.ensure_future(join(one))
    actor = one.actor("g")
    await until(lambda: actor.group.phase is Phase.PREPARING_REBALANCE)
    parked.cancel()
    await until(lambda: all(member.joining is None for member in actor.group.members.values()))


async def test_a_write_that_is_asked_for_again_is_recognised(one: Coordinator) -> None:
    one.door.after.append(UNKNOWN)  # applied, and its answer was lost
    assert (await join(one)).generation_id == 1
    one.door.before.append(UNKNOWN)  # never arrived
    assert (await join(one, "h")).generation_id == 1
    one.door.sent.clear()
    assert isinstance((await record(one)), GroupState)


async def test_a_record_that_etcd_refuses_leaves_the_group_as_it_was(one: Coordinator) -> None:
    member_id = await stable(one)
    one.door.before.append(TOO_LARGE)
    assert await leave(one, member_id) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await beat(one, member_id) == 0
    assert await leave(one, member_id) == 0
    one.door.before.append(TOO_LARGE)
    assert (await join(one, "new")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await join(one, "new")).generation_id == 1


async def test_a_consumer_group_may_be_larger_than_what_etcd_takes_at_once(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace) as one:
        assert [await come_with_much(one, f"m{number}") for number in range(8)] == [0] * 8  # 250 KiB each
        before = durable_consumers(one.actor("g").group)
    async with running(etcd, keyspace) as again:
        assert durable_consumers(again.actor("g").group).members == before.members


async def test_who_is_too_large_to_be_written_is_refused_and_the_others_go_on(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known_topic(one)
    told = await consumer_beat(one, 0)
    monkeypatch.setattr(group_txns, "TXN_BYTES_MAX", 200_000)
    one.door.sent.clear()
    for _ in range(3):
        assert await come_with_much(one, "big") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = await consumer_beat(one, told.member_epoch)
        assert (again.error_code, again.member_epoch) == (0, told.member_epoch)
    assert not one.door.sent
    monkeypatch.undo()
    assert await come_with_much(one, "big") == 0
    assert (await consumer_beat(one, told.member_epoch)).member_epoch == told.member_epoch + 1


async def test_an_empty_group_takes_the_type_of_who_comes(one: Coordinator) -> None:
    await known_topic(one)
    member_id = await stable(one)
    assert (await consumer_beat(one, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await leave(one, member_id) == 0
    assert (await consumer_beat(one, 0)).error_code == 0
    assert isinstance((await _persisted(one)).state, ConsumerGroup)
    assert (await join(one)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await consumer_beat(one, -1)).error_code == 0
    assert (await join(one)).error_code == 0
    assert isinstance((await _persisted(one)).state, ClassicGroup)


async def test_who_is_refused_does_not_turn_a_group_nor_lose_its_record(one: Coordinator) -> None:
    member_id = await stable(one)
    assert await leave(one, member_id) == 0
    slots = one.parts.slots
    claim = slots.held(slot_of("g"))
    assert (await consumer_beat(one, 5)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.parts.groups.is_classic(one.actor("g"))
    assert (await join(one)).generation_id == 3  # an empty generation lies between
    assert slots.held(slot_of("g")) is claim


async def test_a_busy_empty_group_is_turned_later_and_nobody_is_refused_for_ever(one: Coordinator) -> None:
    member_id = await stable(one)
    one.door.gate.clear()
    leaving = asyncio.ensure_future(leave(one, member_id))
    await turns()
    one.actor("g").group = replace(one.actor("g").group, members={})
    assert (await consumer_beat(one, 0)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.door.gate.set()
    await leaving


async def test_a_group_is_what_its_record_says_after_a_restart(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(etcd, keyspace) as one:
        member_id = await stable(one)
        before = durable(one.actor("g").group)
    async with running(etcd, keyspace) as again:
        assert durable(again.actor("g").group) == before
        again.door.sent.clear()
        assert await beat(again, member_id) == 0
        assert not again.door.sent


async def test_a_group_whose_topics_changed_while_nobody_looked_is_written_again(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await make_topic(etcd, keyspace, partitions=1)
    async with running(etcd, keyspace) as one:
        told = await consumer_beat(one, 0)
        assert told.assignment.topic_partitions[0].partitions == [0]
    await make_topic(etcd, keyspace, partitions=3)
    async with running(etcd, keyspace) as again:
        told = await consumer_beat(again, told.member_epoch)
        assert told.assignment.topic_partitions[0].partitions == [0, 1, 2]
        state = (await _persisted(again)).state
        assert isinstance(state, ConsumerGroup)
        assert state.group_epoch == told.member_epoch


async def test_a_deleted_group_has_no_record_and_its_id_is_free(one: Coordinator) -> None:
    member_id = await stable(one)
    request = delete_schema.DeleteGroupsRequest(groups_names=["g"])
    answer = await one.ask(delete_groups, delete_schema, request, 2)
    assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await leave(one, member_id)
    persisted = await _persisted(one)
    assert isinstance(persisted.state, ClassicGroup)
    assert persisted.state.phase is ClassicPhase.EMPTY
    assert persisted.empty_since_ms > 0
    answer = await one.ask(delete_groups, delete_schema, request, 2)
    assert answer.results[0].error_code == 0
    assert await record(one) is None
    assert one.parts.groups.find("g") is None
    assert (await join(one)).generation_id == 1


async def test_a_paused_coordinator_answers_nothing_from_memory(one: Coordinator) -> None:
    member_id = await stable(one)
    one.fresh = False
    assert await beat(one, member_id) == ErrorCode.NOT_COORDINATOR


async def live(one: Coordinator, seconds: int) -> None:
    """So much time passes for the process, second by second, and the group looks at it."""
    for _ in range(seconds):
        one.clock.lived_ms += 1_000
        one.parts.clock.now_ms()
        await turns(1)


async def test_a_member_that_is_silent_for_its_session_is_expired(one: Coordinator) -> None:
    member_id = await stable(one)
    await live(one, SESSION_S)
    one.actor("g").tell(Tick())
    await until(lambda: not one.actor("g").group.members)
    assert await beat(one, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_outage_of_etcd_longer_than_the_session_expires_no_member(one: Coordinator) -> None:
    member_id = await stable(one)
    actor = one.actor("g")
    one.fresh = False
    one.door.gate.clear()
    for _ in range(SESSION_S):
        await live(one, 2)
        actor.tell(Tick())
        assert await beat(one, member_id) == ErrorCode.NOT_COORDINATOR
    one.door.gate.set()
    one.fresh = True
    actor.tell(Tick())
    assert await beat(one, member_id) == 0
    await live(one, SESSION_S // 2)
    assert await beat(one, member_id) == 0


async def test_members_whose_heartbeats_wait_behind_a_long_write_are_not_expired(one: Coordinator) -> None:
    await known_topic(one, partitions=4)
    epochs = [(await consumer_beat(one, 0, member_id=each)).member_epoch for each in ("a", "b", "c")]
    await live(one, CONSUMER_SESSION_S // 2)
    one.door.gate.clear()
    joining = asyncio.ensure_future(consumer_beat(one, 0, member_id="d"))
    await turns()
    beats = [
        asyncio.ensure_future(consumer_beat(one, epoch, member_id=each))
        for each, epoch in zip(("a", "b", "c"), epochs, strict=True)
    ]
    await turns()
    await live(one, CONSUMER_SESSION_S)
    one.door.gate.set()
    answers = await asyncio.gather(joining, *beats)
    assert set(one.actor("g").group.persisted.members) == {"a", "b", "c", "d"}
    assert {answer.error_code for answer in answers} <= {0, ErrorCode.FENCED_MEMBER_EPOCH}


async def test_a_full_inbox_refuses(one: Coordinator) -> None:
    await stable(one)
    actor = one.actor("g")
    one.door.gate.clear()
    parked = asyncio.ensure_future(leave(one, next(iter(actor.group.members))))
    await turns()

    def event(token: int) -> Heartbeat:
        return Heartbeat(
            token=Token(token), generation=Generation(1), member_id=MemberId("x"), instance_id=None
        )

    waiting = [actor.ask(event) for _ in range(10_000)]
    with pytest.raises(GroupFailed) as refused:
        actor.ask(event)
    assert refused.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    one.door.gate.set()
    await parked
    await asyncio.gather(*waiting)


async def _persisted(one: Coordinator) -> GroupState:
    persisted = await record(one)
    assert persisted is not None
    return persisted
