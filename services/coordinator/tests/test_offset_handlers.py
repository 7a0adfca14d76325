"""OffsetCommit, OffsetFetch and OffsetDelete in the shape of each version, their errors as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator.groups.registry import GROUP_ID_BYTES_MAX
from kafscale.coordinator.handlers import (
    offset_commit,
    offset_delete,
    offset_fetch,
)
from kafscale.coordinator.handlers.offset_commit import LATEST_MS
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.groups import NO_EXPIRY, CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit as commit_schema
from kafscale.wire.schema import offset_delete as offset_delete_schema
from kafscale.wire.schema import offset_fetch as fetch_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running
from services.coordinator.tests.test_group_actor import consumer_beat, stable

T = TopicId(b"t".ljust(16, b"."))
NOBODY = bytes(16)
UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


def commit_request(group: str = "g", offset: int = 7, partitions: int = 1, **more: Any) -> Any:
    return commit_schema.OffsetCommitRequest(
        group_id=group,
        topics=[
            commit_schema.OffsetCommitRequestTopic(
                name="t",
                topic_id=T,
                partitions=[
                    commit_schema.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                    for index in range(partitions)
                ],
            )
        ],
        **more,
    )


def fetch_request(group: str, version: int, *, every: bool = False, topic_id: bytes = T) -> Any:
    if version < 8:
        topics = [fetch_schema.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        return fetch_schema.OffsetFetchRequest(group_id=group, topics=None if every else topics)
    asked = [fetch_schema.OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0, 1])]
    return fetch_schema.OffsetFetchRequest(
        groups=[fetch_schema.OffsetFetchRequestGroup(group_id=group, topics=None if every else asked)]
    )


async def fetch(one: Coordinator, version: int, group: str = "g", **more: Any) -> tuple[int, dict[int, Any]]:
    """The group's error, and its partitions."""
    answer = await one.ask(offset_fetch, fetch_schema, fetch_request(group, version, **more), version)
    told = answer.groups[0] if version >= 8 else answer
    return told.error_code, {p.partition_index: p for topic in told.topics for p in topic.partitions}


def no_offset(version: int) -> ErrorCode:
    """What stands beside the -1 of a partition without an offset."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else ErrorCode.NONE


@pytest.mark.parametrize("version", range(11))
async def test_a_committed_offset_is_acknowledged_and_fetched(one: Coordinator, version: int) -> None:
    answer = await one.ask(offset_commit, commit_schema, commit_request(), version)
    assert [p.error_code for topic in answer.topics for p in topic.partitions] == [0]
    for fetching in range(11):
        error, partitions = await fetch(one, fetching)
        assert error == 0
        assert [(p.committed_offset, p.metadata, p.error_code) for p in partitions.values()] == [
            (7, "m", 0),
            (-1, "", no_offset(fetching)),
        ]
        if fetching >= 2:
            error, partitions = await fetch(one, fetching, every=True)
            assert (error, list(partitions)) == (0, [0])


@pytest.mark.parametrize("version", range(11))
async def test_offsets_of_a_group_nobody_knows_are_none_without_error(one: Coordinator, version: int) -> None:
    error, partitions = await fetch(one, version, group="unknown")
    assert error == 0
    told = {(p.committed_offset, p.error_code) for p in partitions.values()}
    assert told == {(-1, no_offset(version))}


@pytest.mark.parametrize("version", range(11))
async def test_offset_fetch_never_says_that_the_coordinator_is_not_available(
    one: Coordinator, version: int
) -> None:
    one.door.before.append(UNKNOWN)
    error, partitions = await fetch(one, version)
    errors = {error} | {p.error_code for p in partitions.values()}
    assert ErrorCode.NOT_COORDINATOR in errors
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE not in errors


async def test_an_unknown_topic_id_is_said_by_partition(one: Coordinator) -> None:
    error, partitions = await fetch(one, 10, topic_id=NOBODY)
    assert error == 0
    assert {p.error_code for p in partitions.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_one_offset_takes_16_kib_of_etcd_at_most(keyspace: Keyspace) -> None:
    """docs/protocol/groups.md says so. A key spells each byte of a group id with three characters at most."""
    group = "\x00" * GROUP_ID_BYTES_MAX
    longest = CommittedOffset(
        offset=LATEST_MS,
        leader_epoch=(1 << 31) - 1,
        metadata="\N{EURO SIGN}"
        * CoordinatorSettings().offset_metadata_max_bytes,  # 3 bytes for one UTF-16 unit
        commit_ms=LATEST_MS,
        expire_ms=LATEST_MS,
    )
    key = keyspace.committed(slot_of(group), group, T, 199_999)
    assert len(key) + len(encode_committed(longest)) <= 16 << 10


@pytest.mark.parametrize("version", range(11))
async def test_a_commit_is_refused_by_partition(one: Coordinator, version: int) -> None:
    request = commit_request(partitions=2)
    request.topics[0].partitions[1].partition_index = 500
    request.topics[0].partitions.append(
        commit_schema.OffsetCommitRequestPartition(
            partition_index=2, committed_offset=1, committed_metadata="m" * 4_097
        )
    )
    answer = await one.ask(offset_commit, commit_schema, request, version)
    assert [p.error_code for p in answer.topics[0].partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    stranger = commit_request(member_id="x", generation_id_or_member_epoch=3)
    await stable(one)
    answer = await one.ask(offset_commit, commit_schema, stranger, version)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_version_0_of_a_commit_is_one_without_a_member(one: Coordinator) -> None:
    member_id = await stable(one)
    request = commit_request(member_id=member_id, generation_id_or_member_epoch=1)
    errors = [
        (await one.ask(offset_commit, commit_schema, request, version)).topics[0].partitions[0].error_code
        for version in (0, 1)
    ]
    assert errors == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]


@pytest.mark.parametrize("version", range(3))
async def test_only_version_1_dates_its_offsets_itself(one: Coordinator, version: int) -> None:
    request = commit_request(partitions=2)
    request.topics[0].partitions[0].commit_timestamp = 12_345
    before_ms = one.clock.wall_ms()
    await one.ask(offset_commit, commit_schema, request, version)
    stored = await one.context.commits.read(one.context.groups.slot("g"), "g")
    assert isinstance(stored, Mapping)
    dated, undated = stored[(T, 0)].commit_ms, stored[(T, 1)].commit_ms
    assert before_ms <= undated <= one.clock.wall_ms()
    assert dated == (12_345 if version == 1 else undated)
    assert {offset.expire_ms for offset in stored.values()} == {NO_EXPIRY}


async def test_the_longest_retention_there_is_ends_at_the_last_time_there_is(one: Coordinator) -> None:
    request = commit_request(retention_time_ms=2**63 - 1)
    answer = await one.ask(offset_commit, commit_schema, request, 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    stored = await one.context.commits.read(one.context.groups.slot("g"), "g")
    assert isinstance(stored, Mapping)
    assert stored[(T, 0)].expire_ms == 2**63 - 1


async def test_a_commit_does_not_overtake_one_that_looks_its_topics_up(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, known = asyncio.Event(), asyncio.Event()

    async def refresh() -> None:
        looked.set()
        await known.wait()

    monkeypatch.setattr(one.topics, "refresh", refresh)
    late = commit_request(offset=1)
    late.topics.insert(
        0,
        commit_schema.OffsetCommitRequestTopic(
            name="nowhere",
            partitions=[commit_schema.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        ),
    )
    first = asyncio.ensure_future(one.ask(offset_commit, commit_schema, late, 8))
    await asyncio.wait_for(looked.wait(), 10)
    second = asyncio.ensure_future(one.ask(offset_commit, commit_schema, commit_request(offset=2), 8))
    answered, _ = await asyncio.wait({second}, timeout=0.3)
    assert not answered, "it waits for the commit that came first"
    known.set()
    await asyncio.gather(first, second)
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == 2


async def test_a_fetch_waits_for_the_commits_that_came_before_it(one: Coordinator) -> None:
    """Whoever gets a partition from a member that did not wait for its commit's answer must not begin before it."""
    one.door.before += [UNKNOWN, UNKNOWN]
    commits = [
        asyncio.ensure_future(one.ask(offset_commit, commit_schema, commit_request(offset=offset), 8))
        for offset in (5, 6)
    ]
    await asyncio.sleep(0)
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == 6
    await asyncio.gather(*commits)
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == 6


async def test_a_topic_is_unknown_only_after_etcd_was_read_for_it(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is told "no offset" begins anew and commits over what it had."""

    reads = 0

    async def no_answer() -> None:
        nonlocal reads
        reads += 1
        raise UNKNOWN

    await one.ask(offset_commit, commit_schema, commit_request(), 8)
    monkeypatch.setattr(one.topics, "find", lambda _ref: None)  # a view that is behind
    monkeypatch.setattr(one.topics, "refresh", no_answer)
    for version in range(1, 11):
        error, partitions = await fetch(one, version)
        assert (error or partitions[0].error_code) == ErrorCode.NOT_COORDINATOR
    error, _ = await fetch(one, 8, every=True)
    assert error == ErrorCode.NOT_COORDINATOR
    request = commit_request()
    request.topics *= 3
    reads = 0
    answer = await one.ask(offset_commit, commit_schema, request, 8)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    }
    assert reads == 1, "one read for all topics of a request"


async def test_a_commit_that_is_too_old_is_not_let_in(one: Coordinator) -> None:
    answer = await one.ask(offset_commit, commit_schema, commit_request(), 8, aged=True)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    _, partitions = await fetch(one, 8)
    assert partitions[0].committed_offset == -1


async def test_offsets_are_deleted(one: Coordinator) -> None:
    await one.ask(offset_commit, commit_schema, commit_request(partitions=2), 8)
    request = offset_delete_schema.OffsetDeleteRequest(
        group_id="g",
        topics=[
            offset_delete_schema.OffsetDeleteRequestTopic(
                name="t",
                partitions=[
                    offset_delete_schema.OffsetDeleteRequestPartition(partition_index=index)
                    for index in (0, 900)
                ],
            )
        ],
    )
    answer = await one.ask(offset_delete, offset_delete_schema, request, 0)
    assert answer.error_code == 0
    assert [p.error_code for p in answer.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    _, partitions = await fetch(one, 8)
    assert [p.committed_offset for p in partitions.values()] == [-1, 7]
    request.group_id = "unknown"
    answer = await one.ask(offset_delete, offset_delete_schema, request, 0)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("version", [9, 10])
async def test_who_fetches_as_a_member_is_judged_as_in_kafka(
    one: Coordinator, version: int, every: bool
) -> None:
    await consumer_beat(one, 0, group="consumer")
    await stable(one, "classic")

    async def told(group: str, member_id: str | None, epoch: int) -> int:
        request = fetch_request(group, version, every=every)
        request.groups[0].member_id = member_id
        request.groups[0].member_epoch = epoch
        (answer,) = (await one.ask(offset_fetch, fetch_schema, request, version)).groups
        offsets = {(p.committed_offset, p.error_code) for topic in answer.topics for p in topic.partitions}
        assert offsets <= {(-1, 0)}
        error: int = answer.error_code
        return error

    assert [await told("consumer", "m", epoch) for epoch in (1, 0, 2, -1)] == [
        0,
        *[ErrorCode.STALE_MEMBER_EPOCH] * 3,
    ]
    assert await told("consumer", None, -1) == 0
    for stranger, epoch in (("nobody", 1), ("", -1), ("nobody", -1)):
        assert await told("consumer", stranger, epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await told("classic", stranger, epoch) == 0
        assert await told("unknown", stranger, epoch) == 0


async def test_the_group_without_a_name_has_offsets_as_in_kafka(one: Coordinator) -> None:
    answer = await one.ask(offset_commit, commit_schema, commit_request(""), 8)
    assert answer.topics[0].partitions[0].error_code == 0
    _, partitions = await fetch(one, 8, group="")
    assert partitions[0].committed_offset == 7
