"""What time does to offsets: those of deleted topics and of groups long empty go, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from kafscale.coordinator.groups import commits as commits_module
from kafscale.coordinator.groups import offset_expiration
from kafscale.coordinator.handlers import offset_commit
from kafscale.storage.coordination import encode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.slots import Slot, slot_of
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit as schema

from services.coordinator.tests.shell_harness import WAIT_S, Coordinator, make_topic, running, until
from services.coordinator.tests.test_group_actor import leave, record, stable

WEEK_MS = 10_080 * 60_000


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


async def commit(one: Coordinator, retention_ms: int = -1, group: str = "g", topic: str = "t") -> None:
    request = schema.OffsetCommitRequest(
        group_id=group,
        retention_time_ms=retention_ms,
        topics=[
            schema.OffsetCommitRequestTopic(
                name=topic,
                partitions=[schema.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    answer = await one.ask(offset_commit, schema, request, 2)
    assert answer.topics[0].partitions[0].error_code == 0


async def kept(one: Coordinator, group: str = "g") -> int:
    found = await one.parts.commits.read(one.parts.groups.slot(group), group)
    assert not isinstance(found, ErrorCode)
    return len(found)


async def expire_offsets(one: Coordinator, group: str = "g") -> None:
    await one.parts.offset_expiration.slot(one.parts.groups.slot(group))


async def test_an_empty_group_is_forgotten_after_its_retention_and_not_before(one: Coordinator) -> None:
    await commit(one)
    one.clock.later_ms = WEEK_MS - 60_000
    await expire_offsets(one)
    assert await kept(one) == 1
    one.clock.later_ms = WEEK_MS + 1
    await expire_offsets(one)
    assert await kept(one) == 0
    assert await record(one) is None
    assert one.parts.groups.find("g") is None


async def test_retention_begins_when_the_last_member_has_gone(one: Coordinator) -> None:
    await commit(one)
    member_id = await stable(one)
    one.clock.later_ms = 2 * WEEK_MS
    await expire_offsets(one)
    assert await kept(one) == 1  # it has a member
    assert await leave(one, member_id) == 0
    await expire_offsets(one)
    assert await kept(one) == 1
    one.clock.later_ms = 3 * WEEK_MS + 1
    await expire_offsets(one)
    assert await kept(one) == 0


async def test_a_commit_may_ask_for_its_own_retention(one: Coordinator) -> None:
    await commit(one, retention_ms=1_000)
    one.clock.later_ms = 2_000
    await expire_offsets(one)
    assert await kept(one) == 0
    assert await record(one) is not None


async def test_offsets_of_a_deleted_topic_go_and_those_of_one_just_made_stay(one: Coordinator) -> None:
    await make_topic(one.etcd, one.keys, "u")
    await commit(one, topic="t")
    await commit(one, topic="u")
    await one.etcd.delete(one.keys.topic("t"))
    await until(lambda: one.topics.by_name("t") is None)
    await make_topic(one.etcd, one.keys, "just-made")
    await expire_offsets(one)
    assert await kept(one) == 1


async def test_a_commit_that_crosses_the_upkeep_stays(one: Coordinator) -> None:
    await commit(one)
    one.clock.later_ms = WEEK_MS + 1
    commits = one.parts.commits
    honest = commits.read_page

    async def slow(held, start=None):  # type: ignore[no-untyped-def]
        found = await honest(held, start)
        await commit(one)  # a consumer is back, behind the reader's back
        return found

    commits.read_page = slow  # type: ignore[method-assign]
    await expire_offsets(one)
    commits.read_page = honest  # type: ignore[method-assign]
    assert await kept(one) == 1
    assert one.parts.groups.find("g") is not None


async def test_an_offset_without_a_group_goes_in_its_time(one: Coordinator) -> None:
    held = one.parts.groups.slot("stray")
    now_ms = one.clock.wall_ms()
    topic_id = one.topics.by_name("t").topic_id  # type: ignore[union-attr]
    offset: Mapping[PartitionKey, CommittedOffset] = {
        (topic_id, 0): CommittedOffset(offset=1, commit_ms=now_ms)
    }
    await one.parts.commits.write(held, "stray", offset)
    await expire_offsets(one, "stray")
    assert await kept(one, "stray") == 1
    one.clock.later_ms = WEEK_MS + 1
    await expire_offsets(one, "stray")
    assert await kept(one, "stray") == 0


async def test_a_slot_that_goes_during_the_upkeep_ends_nothing_else(one: Coordinator) -> None:
    await commit(one)
    one.clock.later_ms = WEEK_MS + 1
    held = one.parts.groups.slot("g")
    commits = one.parts.commits
    honest = commits.expire

    async def gone(*args: object) -> bool:
        await one.etcd.put(one.keys.slot_claim(slot_of("g")), encode_owner(Slot(epoch=9, owner="2/x")))
        await until(lambda: one.parts.slots.held(slot_of("g")) is not held)
        return True

    commits.expire = gone  # type: ignore[assignment,method-assign]
    await one.parts.offset_expiration.slot(held)
    commits.expire = honest  # type: ignore[method-assign]
    await one.has(64)
    assert await kept(one) == 1


async def test_a_group_larger_than_a_page_is_forgotten_with_all_its_offsets_or_not_at_all(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits_module, "OFFSETS_PER_PAGE", 2)
    await commit(one)
    held = one.parts.groups.slot("g")
    topic_id = one.topics.by_name("t").topic_id  # type: ignore[union-attr]
    now_ms = one.clock.wall_ms()
    last = CommittedOffset(offset=1, commit_ms=now_ms + WEEK_MS)
    old = CommittedOffset(offset=1, commit_ms=now_ms)
    await one.parts.commits.write(
        held, "g", {(topic_id, n): old for n in range(1, 8)} | {(topic_id, 0): last}
    )
    one.clock.later_ms = WEEK_MS + 1_000
    await expire_offsets(one)
    assert await kept(one) == 1
    assert await record(one) is not None
    one.clock.later_ms = 2 * WEEK_MS + 1_000
    await expire_offsets(one)
    assert await kept(one) == 0
    assert await record(one) is None


async def gone(one: Coordinator) -> None:
    async with asyncio.timeout(WAIT_S):
        while await kept(one):
            await asyncio.sleep(0.01)


async def test_the_loop_runs_soon_after_a_topic_went(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_expiration, "SETTLE_S", 0.0)
    monkeypatch.setattr(offset_expiration, "SLOT_PAUSE_S", 0.0)
    await commit(one)
    await one.etcd.delete(one.keys.topic("t"))
    await gone(one)


async def test_the_loop_runs_again_and_again_as_time_goes_by(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_expiration, "SLOT_PAUSE_S", 0.0)
    monkeypatch.setattr(offset_expiration, "EVERY_S", 0.001)
    often = offset_expiration.OffsetExpiration(one.context)
    looping = asyncio.ensure_future(often.run())
    for week in (1, 2):
        await commit(one)
        one.clock.later_ms = week * WEEK_MS + week * 60_000
        await gone(one)
    looping.cancel()
    await asyncio.gather(looping, return_exceptions=True)


async def test_what_the_upkeep_did_not_expect_ends_the_process_and_not_the_loop_alone(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_expiration, "SETTLE_S", 0.0)

    async def broken(_held: object) -> None:
        raise RuntimeError("a mistake of ours")

    one.parts.offset_expiration.slot = broken  # type: ignore[method-assign]
    await one.etcd.delete(one.keys.topic("t"))
    ended = await one.ended()
    assert isinstance(ended, ExceptionGroup)
    assert [str(error) for error in ended.exceptions] == ["a mistake of ours"]


@pytest.mark.parametrize("on_its_way", [False, True])
async def test_a_group_whose_offset_came_when_its_last_one_went_is_not_forgotten(
    one: Coordinator, on_its_way: bool
) -> None:
    await commit(one)
    one.clock.later_ms = WEEK_MS + 1
    held = one.parts.groups.slot("g")
    commits = one.parts.commits
    honest = commits.expire
    crossing: list[asyncio.Future[None]] = []

    async def slow(*args):  # type: ignore[no-untyped-def]
        all_gone = await honest(*args)
        crossing.append(asyncio.ensure_future(commit(one)))
        if on_its_way:
            one.door.before.append(EtcdUnknown(UnknownKind.TIMEOUT, "no answer"))
            await until(lambda: not one.door.before)
        else:
            await crossing[0]
        return all_gone

    commits.expire = slow  # type: ignore[method-assign]
    await one.parts.offset_expiration.slot(held)
    await asyncio.gather(*crossing)
    assert await kept(one) == 1
    assert await record(one) is not None
