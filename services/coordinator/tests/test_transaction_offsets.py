"""Offsets of transactions in the real line on a real etcd: puts, ends, and what becomes of them (T9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from kafscale.coordinator.classic.model import Commit as ClassicCommit
from kafscale.coordinator.classic.model import Token
from kafscale.coordinator.groups import ends as ends_module
from kafscale.coordinator.groups.pending import MOVED_TOGETHER
from kafscale.coordinator.handlers import delete_groups, offset_delete, offset_fetch
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.rpc.v1.transactions_pb2 import EndRequest, ParticipantSet, TransactionEnd
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import slot_of
from kafscale.storage.transactions import PendingOffset, PendingOffsets, encode_pending
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_groups as delete_schema
from kafscale.wire.schema import offset_delete as offset_delete_schema
from kafscale.wire.schema import offset_fetch as fetch_schema

from services.coordinator.tests.shell_harness import (
    OFF,
    SETTINGS,
    Coordinator,
    make_topic,
    running,
    turns,
    until,
)

T, GONE = TopicId(b"t".ljust(16, b".")), TopicId(b"gone".ljust(16, b"."))
GROUP, PID, OTHER_PID = "g", 7, 8
NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        coordinator.door.sent.clear()
        yield coordinator


def held_by(one: Coordinator) -> Held:
    return one.parts.groups.slot(GROUP)


def values(offsets: Mapping[int, int], topic_id: TopicId = T) -> dict[tuple[TopicId, int], CommittedOffset]:
    return {(topic_id, where): CommittedOffset(offset=each, commit_ms=1) for where, each in offsets.items()}


def put(
    one: Coordinator, offsets: Mapping[int, int], *, number: int = 1, pid: int = PID
) -> asyncio.Future[ErrorCode]:
    producer = ProducerEpoch(pid, 0)
    return one.parts.transaction_offsets.put(held_by(one), GROUP, producer, number, values(offsets))


def commit(one: Coordinator, offsets: Mapping[int, int]) -> asyncio.Future[ErrorCode]:
    """A plain one."""
    return one.parts.commits.write(held_by(one), GROUP, values(offsets))


def ended(*, number: int = 1, commit: bool = True, pid: int = PID) -> TransactionEnd:
    participants = ParticipantSet(groups=[GROUP])
    return TransactionEnd(producer_id=pid, number=number, commit=commit, participants=participants)


async def end(one: Coordinator, *, number: int = 1, commit: bool = True, pid: int = PID) -> bool:
    """Whether it is confirmed."""
    asked = ended(number=number, commit=commit, pid=pid)
    reply = await one.parts.group_ends.end(EndRequest(ends=[asked]))
    for done in reply.done:
        assert (done.producer_id, done.number, [*done.participants.groups]) == (pid, number, [GROUP])
    return bool(reply.done)


async def committed(one: Coordinator) -> dict[int, int]:
    found = await one.parts.commits.read(held_by(one), GROUP)
    assert not isinstance(found, ErrorCode)
    return {partition: offset.offset for (_, partition), offset in sorted(found.items())}


async def stored(one: Coordinator) -> int:
    """Values of pending offsets in etcd."""
    return len((await one.etcd.prefix(one.keys.pendings_prefix())).kvs)


# --- puts and ends --------------------------------------------------------------------------------


async def test_offsets_reach_the_group_with_the_commit_of_their_transaction(one: Coordinator) -> None:
    assert await put(one, {0: 1, 1: 2}) is NONE
    assert await put(one, {0: 3}) is NONE
    assert (await committed(one), await stored(one), one.metric("pending_offsets")) == ({}, 1, 2)
    assert await end(one)
    assert (await committed(one), await stored(one), one.metric("pending_offsets")) == ({0: 3, 1: 2}, 0, 0)


async def test_an_abort_takes_them_back(one: Coordinator) -> None:
    await commit(one, {0: 9})
    await put(one, {0: 10, 1: 2})
    assert await end(one, commit=False)
    assert (await committed(one), await stored(one)) == ({0: 9}, 0)


async def test_a_put_and_a_move_cost_one_write_each(one: Coordinator) -> None:
    await put(one, {0: 1})
    await end(one)
    assert len(one.door.sent) == 2


async def test_a_plain_commit_between_two_puts_stays(one: Coordinator) -> None:
    await put(one, {0: 1, 1: 1})
    await commit(one, {0: 5})
    await put(one, {2: 1})
    assert await end(one)
    assert await committed(one) == {0: 5, 1: 1, 2: 1}


async def test_changes_of_one_partition_keep_their_order_while_all_of_them_wait(one: Coordinator) -> None:
    one.door.gate.clear()
    answers = [
        commit(one, {0: 1}),
        put(one, {0: 2}),
        asyncio.ensure_future(end(one)),
        commit(one, {1: 3}),
        put(one, {1: 4}, pid=OTHER_PID),
        commit(one, {1: 5}),
        asyncio.ensure_future(end(one, pid=OTHER_PID)),
    ]
    await turns()
    answers.append(commit(one, {1: 6}))
    one.door.gate.set()
    assert await asyncio.gather(*answers) == [NONE, NONE, True, NONE, NONE, NONE, True, NONE]
    assert await committed(one) == {0: 2, 1: 6}


async def test_changes_of_other_partitions_are_made_together(one: Coordinator) -> None:
    """The threads of a Streams application have a producer each, and one group."""
    one.door.gate.clear()
    first = commit(one, {400: 1})
    await turns()
    answers = [put(one, {pid: pid}, pid=pid) for pid in range(100)]
    plain = commit(one, {401: 1})
    one.door.gate.set()
    assert {await first, *await asyncio.gather(*answers), await plain} == {NONE}
    assert len(one.door.sent) <= 3
    one.door.sent.clear()
    assert all(await asyncio.gather(*(end(one, pid=pid) for pid in range(100))))
    assert len(one.door.sent) <= 3
    assert await committed(one) == {**{pid: pid for pid in range(100)}, 400: 1, 401: 1}


async def test_a_repeated_end_is_confirmed_and_changes_nothing(one: Coordinator) -> None:
    await put(one, {0: 1})
    assert await end(one)
    await put(one, {0: 2}, number=2)
    assert await end(one)
    assert await end(one, number=3, commit=False)
    assert (await committed(one), await stored(one)) == ({0: 1}, 1)


async def test_an_end_of_nothing_is_confirmed_by_a_read_of_the_claim(one: Coordinator) -> None:
    """An instance that has lost the slot has nothing pending in its memory, and knows nothing."""
    assert await end(one)
    await one.etcd.put(one.keys.slot_claim(slot_of(GROUP)), b"of another")
    assert not await end(one)


async def test_an_end_is_not_confirmed_while_the_slot_is_elsewhere(one: Coordinator) -> None:
    one.fresh = False
    assert not await end(one)


async def test_a_move_with_an_unknown_outcome_is_made_once(one: Coordinator) -> None:
    one.door.after.append(UNKNOWN)
    assert await put(one, {0: 1}) is NONE
    one.door.after.append(UNKNOWN)
    assert await end(one)
    assert (await committed(one), await stored(one)) == ({0: 1}, 0)


async def test_an_end_that_takes_too_long_is_not_confirmed_and_goes_on(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(one, {0: 1})
    one.door.gate.clear()
    with monkeypatch.context() as patch:
        patch.setattr(ends_module, "ANSWER_S", 0.05)
        assert not await end(one)
    one.door.gate.set()
    assert await end(one)
    assert await committed(one) == {0: 1}


async def test_offsets_of_a_deleted_topic_are_dropped_at_the_move(one: Coordinator) -> None:
    await put(one, {0: 1})
    gone = values({0: 2}, GONE)
    await one.parts.transaction_offsets.put(held_by(one), GROUP, ProducerEpoch(PID, 0), 1, gone)
    assert await end(one)
    assert await one.parts.commits.read(held_by(one), GROUP) == values({0: 1})


async def test_offsets_of_a_deleted_topic_are_dropped_also_by_the_end_that_comes_with_an_answer(
    one: Coordinator,
) -> None:
    held, offsets = held_by(one), one.parts.transaction_offsets
    await put(one, {0: 1})
    await offsets.put(held, GROUP, ProducerEpoch(PID, 0), 1, values({0: 2}, GONE))
    await offsets.end_first(held, GROUP, ended())
    assert await put(one, {1: 1}, number=2) is NONE
    assert await one.parts.commits.read(held, GROUP) == values({0: 1})


# --- questions ------------------------------------------------------------------------------------


async def test_a_put_that_crosses_the_end_of_its_transaction_is_refused(one: Coordinator) -> None:
    held, offsets = held_by(one), one.parts.transaction_offsets
    offsets.begin_question(held, GROUP, PID)
    assert await end(one, number=4)
    assert await put(one, {0: 1}, number=4) is CONCURRENT
    offsets.end_question(held, GROUP, PID)
    assert await put(one, {0: 1}, number=5) is NONE
    assert await stored(one) == 1


async def test_a_put_that_waits_in_line_is_refused_for_an_end_that_came_during_its_question(
    one: Coordinator,
) -> None:
    held, offsets = held_by(one), one.parts.transaction_offsets
    offsets.begin_question(held, GROUP, PID)
    assert await end(one, number=4)
    one.door.gate.clear()
    plain = commit(one, {0: 1})
    waiting = put(one, {0: 2}, number=4)
    offsets.end_question(held, GROUP, PID)
    one.door.gate.set()
    assert (await plain, await waiting, await stored(one)) == (NONE, CONCURRENT, 0)


async def test_the_end_that_comes_with_an_answer_is_carried_out_before_the_put(one: Coordinator) -> None:
    held, offsets = held_by(one), one.parts.transaction_offsets
    await put(one, {0: 1, 1: 1})
    offsets.begin_question(held, GROUP, PID)
    await offsets.end_first(held, GROUP, ended())
    second = put(one, {0: 2}, number=2)
    offsets.end_question(held, GROUP, PID)
    assert await second is NONE
    assert await committed(one) == {0: 1, 1: 1}
    assert await end(one, number=2, commit=False)
    assert await committed(one) == {0: 1, 1: 1}


async def test_two_transactions_are_not_pending_at_once(one: Coordinator) -> None:
    await put(one, {0: 1})
    assert await put(one, {0: 2}, number=2) is CONCURRENT


# --- another coordinator --------------------------------------------------------------------------


async def test_a_move_in_parts_goes_on_with_the_next_coordinator(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    wanted = {where: where + 1 for where in range(2 * MOVED_TOGETHER + 1)}
    last = 2 * MOVED_TOGETHER
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as first:
        await put(first, wanted)
        first.door.room = 1
        moving = asyncio.ensure_future(end(first))
        await until(lambda: first.metric("pending_offsets") == MOVED_TOGETHER + 1)
        moving.cancel()
        assert len(await committed_of(etcd, keyspace)) == MOVED_TOGETHER
    await first.lease_ends()
    async with running(etcd, keyspace, node_id=2) as second:
        assert second.metric("pending_offsets") == MOVED_TOGETHER + 1
        await commit(second, {last: 999})
        assert await end(second)
        assert await committed(second) == {**wanted, last: 999}
        assert await stored(second) == 0


async def committed_of(etcd: EtcdClient, keyspace: Keyspace) -> list[bytes]:
    return [kv.key for kv in (await etcd.prefix(keyspace.commits_prefix())).kvs]


async def test_a_coordinator_without_the_slot_changes_nothing(one: Coordinator) -> None:
    await put(one, {0: 1})
    await one.etcd.put(one.keys.slot_claim(slot_of(GROUP)), b"of another")
    assert await put(one, {1: 1}) is ErrorCode.NOT_COORDINATOR
    assert (await stored(one), len(await committed_of(one.etcd, one.keys))) == (1, 0)


async def test_a_value_that_cannot_be_read_is_not_touched(etcd: EtcdClient, keyspace: Keyspace) -> None:
    key = keyspace.pending(slot_of(GROUP), GROUP, PID)
    await etcd.put(key, b"\xff")
    await etcd.put(keyspace.pendings_prefix(slot_of(GROUP), GROUP) + b"stray", b"")
    async with running(etcd, keyspace) as one:
        assert one.metric("pending_offsets_unreadable") == 1
        assert not await end(one)
        assert not await end(one, commit=False)
        assert await put(one, {0: 1}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await put(one, {0: 1}, pid=OTHER_PID) is NONE
        kv = await etcd.get(key)
        assert kv is not None
        assert kv.value == b"\xff"


# --- requests of consumers and administrators -----------------------------------------------------


async def fetched(one: Coordinator, version: int, *, stable: bool) -> dict[int, tuple[int, int]]:
    """Offset and error by partition. As a tool asks, for partitions 0 to 2."""
    asked = [fetch_schema.OffsetFetchRequestTopics(name="t", topic_id=T, partition_indexes=[0, 1, 2])]
    groups = [fetch_schema.OffsetFetchRequestGroup(group_id=GROUP, topics=asked)]
    old = [fetch_schema.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 2])]
    request = fetch_schema.OffsetFetchRequest(
        group_id=GROUP, topics=old, groups=groups, require_stable=stable
    )
    answer = await one.ask(offset_fetch, fetch_schema, request, version)
    found = answer.groups[0] if version >= 8 else answer
    assert found.error_code == 0
    return {
        each.partition_index: (each.committed_offset, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [7, 8, 9, 10])
async def test_a_consumer_waits_for_offsets_that_are_pending(one: Coordinator, version: int) -> None:
    await commit(one, {0: 5, 1: 6})
    await put(one, {0: 7, 2: 8})
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert await fetched(one, version, stable=True) == {0: unstable, 1: (6, 0), 2: unstable}
    assert await fetched(one, version, stable=False) == {0: (5, 0), 1: (6, 0), 2: (-1, 0)}
    await end(one)
    assert await fetched(one, version, stable=True) == {0: (7, 0), 1: (6, 0), 2: (8, 0)}


async def test_a_move_between_two_looks_shows_no_old_offset_as_stable(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(one, {0: 5})
    await put(one, {0: 7})
    honest = one.parts.commits.read

    async def read(held: Held, group: str) -> object:
        found = await honest(held, group)
        assert await end(one)
        return found

    monkeypatch.setattr(one.parts.commits, "read", read)
    assert (await fetched(one, 8, stable=True))[0] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def test_of_all_topics_the_pending_partitions_are_unstable(one: Coordinator) -> None:
    await commit(one, {0: 5, 1: 6})
    await put(one, {0: 7})
    groups = [fetch_schema.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    request = fetch_schema.OffsetFetchRequest(groups=groups, require_stable=True)
    (group,) = (await one.ask(offset_fetch, fetch_schema, request, 8)).groups
    (topic,) = group.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT, 0]


async def test_a_fetch_waits_for_the_puts_and_ends_that_came_before_it(one: Coordinator) -> None:
    await put(one, {1: 1})
    one.door.gate.clear()
    moving, waiting = asyncio.ensure_future(end(one)), put(one, {0: 7}, pid=OTHER_PID)
    await turns()
    fetching = asyncio.ensure_future(fetched(one, 8, stable=True))
    await turns()
    one.door.gate.set()
    assert await fetching == {0: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), 1: (1, 0), 2: (-1, 0)}
    assert (await moving, await waiting) == (True, NONE)


async def test_a_damaged_value_makes_the_group_unstable(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await make_topic(etcd, keyspace)
    await etcd.put(keyspace.pending(slot_of(GROUP), GROUP, PID), b"\xff")
    async with running(etcd, keyspace) as one:
        await commit(one, {0: 5})
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fetched(one, 8, stable=True) == dict.fromkeys(range(3), unstable)
        assert (await fetched(one, 8, stable=False))[0] == (5, 0)


async def delete_offsets(one: Coordinator, *partitions: int) -> int:
    asked = [offset_delete_schema.OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    topics = [offset_delete_schema.OffsetDeleteRequestTopic(name="t", partitions=asked)]
    request = offset_delete_schema.OffsetDeleteRequest(group_id=GROUP, topics=topics)
    answer = await one.ask(offset_delete, offset_delete_schema, request, 0)
    assert all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)
    error: int = answer.error_code
    return error


async def group_exists(one: Coordinator) -> None:
    """As after an OffsetCommit without a member."""
    actor = one.parts.groups.committing(GROUP)
    await actor.ask(lambda token: ClassicCommit(token=Token(token)))


async def test_deleted_offsets_do_not_come_back_with_the_commit(one: Coordinator) -> None:
    await group_exists(one)
    await commit(one, {0: 5, 1: 5})
    await put(one, {0: 7, 2: 8})
    await put(one, {1: 9}, pid=OTHER_PID)
    assert await delete_offsets(one, 0, 1) == 0
    assert (await end(one), await end(one, pid=OTHER_PID)) == (True, True)
    assert await committed(one) == {2: 8}


async def test_offsets_cannot_be_deleted_while_a_pending_value_is_unreadable(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await make_topic(etcd, keyspace)
    await etcd.put(keyspace.pending(slot_of(GROUP), GROUP, PID), b"\xff")
    async with running(etcd, keyspace) as one:
        await group_exists(one)
        assert await delete_offsets(one, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def delete_group(one: Coordinator) -> int:
    request = delete_schema.DeleteGroupsRequest(groups_names=[GROUP])
    answer = await one.ask(delete_groups, delete_schema, request, 2)
    error: int = answer.results[0].error_code
    return error


async def test_pending_offsets_go_with_their_group(one: Coordinator) -> None:
    await group_exists(one)
    await commit(one, {0: 5})
    await put(one, {0: 7})
    one.door.gate.clear()
    queued = put(one, {1: 8}, pid=OTHER_PID)
    deleting = asyncio.ensure_future(delete_group(one))
    await turns()
    one.door.gate.set()
    assert (await queued, await deleting, await stored(one)) == (NONE, 0, 0)
    assert (await end(one), await end(one, pid=OTHER_PID)) == (True, True)
    assert await committed(one) == {}


async def test_a_damaged_value_goes_with_its_group(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await etcd.put(keyspace.pending(slot_of(GROUP), GROUP, PID), b"\xff")
    async with running(etcd, keyspace) as one:
        await group_exists(one)
        assert (await delete_group(one), await stored(one)) == (0, 0)
        assert await end(one)


async def test_a_group_with_pending_offsets_does_not_expire(one: Coordinator) -> None:
    await group_exists(one)
    await commit(one, {0: 5})
    await put(one, {1: 7})
    one.clock.later_ms += 2 * SETTINGS.offsets_retention_ms
    await one.parts.offset_expiration.slot(held_by(one))
    assert await committed(one) == {0: 5}
    assert await end(one, commit=False)
    await one.parts.offset_expiration.slot(held_by(one))
    assert await committed(one) == {}
    assert one.parts.groups.find(GROUP) is None


async def test_a_group_with_nothing_but_pending_offsets_does_not_expire(one: Coordinator) -> None:
    await group_exists(one)
    await put(one, {1: 7})
    one.clock.later_ms += 2 * SETTINGS.offsets_retention_ms
    await one.parts.offset_expiration.slot(held_by(one))
    assert one.parts.groups.find(GROUP) is not None


# --- off ------------------------------------------------------------------------------------------


async def test_without_transactions_nothing_of_them_is_read(etcd: EtcdClient, keyspace: Keyspace) -> None:
    offset = PendingOffset(topic_id=T, partition=0, offset=CommittedOffset(offset=7, commit_ms=1))
    value = PendingOffsets(group=GROUP, producer_id=PID, epoch=0, number=1, offsets=(offset,))
    await make_topic(etcd, keyspace)
    await etcd.put(keyspace.pending(slot_of(GROUP), GROUP, PID), encode_pending(value))
    async with running(etcd, keyspace, OFF) as one:
        await group_exists(one)
        await commit(one, {0: 5})
        assert (await fetched(one, 8, stable=True))[0] == (5, 0)
        assert (await delete_group(one), await stored(one), one.metric("pending_offsets")) == (0, 1, 0)
