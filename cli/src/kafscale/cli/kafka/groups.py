"""What tools ask of consumer groups: which there are, how far each has read, deleting one, moving its offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kafscale.cli.kafka.client import Address, Client, check, patiently
from kafscale.cli.kafka.topics import EARLIEST, LATEST, NO_OFFSET, Place, Row, find_topics, offsets_at
from kafscale.lake.lag.owners import assigned
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)

NO_GENERATION: Final = -1
_CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who has a partition."""

    member: str
    client: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    state: str
    kind: str  # classic or consumer
    readers: Mapping[Place, Reader] = field(default_factory=dict)


def of_group(name: str) -> str:
    return f"group '{name}'"


async def list_all_groups(client: Client) -> list[Row]:
    """By name: group, type, state, protocol. Each broker is asked, as each lists those that it is named for."""
    brokers = (await client.metadata([])).brokers

    async def of_broker(at: Address) -> list[Row]:
        answer = await client.ask(
            list_groups, list_groups.ListGroupsRequest(states_filter=[], types_filter=[]), 5, at=at
        )
        check(f"the groups of the front door at {at[0]}:{at[1]}", answer.error_code)
        return [
            {
                "group": group.group_id,
                "type": group.group_type.lower(),
                "state": group.group_state,
                "protocol": group.protocol_type,
            }
            for group in answer.groups
        ]

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(patiently(partial(of_broker, (each.host, each.port)))) for each in brokers]
    found = {row["group"]: row for task in asked for row in task.result()}
    return [found[name] for name in sorted(found)]


async def describe_group(client: Client, name: str) -> list[Row]:
    """A row for each partition that the group has read or that a member of it has."""
    at = await client.coordinator(name)
    group = await patiently(lambda: _find(client, name, at))
    committed = await committed_offsets(client, name, at)
    places = sorted(committed.keys() | group.readers.keys())
    there = await _there(client, places)
    ends = await offsets_at(client, there, LATEST)
    return [_row(name, group, place, committed.get(place), ends.get(place)) for place in places]


async def state_of(client: Client, name: str) -> Group:
    at = await client.coordinator(name)
    return await patiently(lambda: _find(client, name, at))


async def _there(client: Client, places: list[Place]) -> list[Place]:
    """Without partitions of topics that are gone: offsets outlive their topic for a moment."""
    answer = await client.metadata(sorted({topic for topic, _ in places}))
    counts = {
        topic.name: len(topic.partitions) for topic in answer.topics if topic.error_code == ErrorCode.NONE
    }
    return [(topic, partition) for topic, partition in places if partition < counts.get(topic, 0)]


def _row(name: str, group: Group, place: Place, committed: int | None, end: int | None) -> Row:
    reader = group.readers.get(place)
    lag = None if committed is None or end is None else max(end - committed, 0)
    return {
        "group": name,
        "state": group.state,
        "topic": place[0],
        "partition": place[1],
        "committed": committed,
        "end": end,
        "lag": lag,
        "member": reader.member if reader else None,
        "client": reader.client if reader else None,
        "host": reader.host if reader else None,
    }


async def _find(client: Client, name: str, at: Address) -> Group:
    """Of either protocol. Raises KafkaTrouble when there is none."""
    request = describe_groups.DescribeGroupsRequest(groups=[name])
    (found,) = (await client.ask(describe_groups, request, 6, at=at)).groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return await _find_consumer_group(client, name, at)
    check(of_group(name), found.error_code, found.error_message)
    readers = {
        place: Reader(member=member.member_id, client=member.client_id, host=member.client_host)
        for member in found.members
        if found.protocol_type == _CONSUMER
        for place in assigned(bytes(member.member_assignment))
    }
    return Group(state=found.group_state, kind="classic", readers=readers)


async def _find_consumer_group(client: Client, name: str, at: Address) -> Group:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[name])
    (found,) = (await client.ask(consumer_group_describe, request, 0, at=at)).groups
    check(of_group(name), found.error_code, found.error_message)
    readers = {
        (topic.topic_name, partition): Reader(
            member=member.member_id, client=member.client_id, host=member.client_host
        )
        for member in found.members
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    }
    return Group(state=found.group_state, kind="consumer", readers=readers)


async def committed_offsets(client: Client, name: str, at: Address) -> dict[Place, int]:
    """Where the group goes on; partitions of which it has committed nothing are not in it."""
    request = offset_fetch.OffsetFetchRequest(
        topics=None, groups=[offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None)]
    )

    async def ask() -> dict[Place, int]:
        (found,) = (await client.ask(offset_fetch, request, 8, at=at)).groups
        check(of_group(name), found.error_code)
        offsets: dict[Place, int] = {}
        for topic in found.topics:
            for part in topic.partitions:
                check(f"{of_group(name)} in {topic.name}/{part.partition_index}", part.error_code)
                if part.committed_offset != NO_OFFSET:
                    offsets[topic.name, part.partition_index] = part.committed_offset
        return offsets

    return await patiently(ask)


async def delete_group(client: Client, name: str) -> None:
    at = await client.coordinator(name)
    request = delete_groups.DeleteGroupsRequest(groups_names=[name])

    async def ask() -> None:
        (gone,) = (await client.ask(delete_groups, request, 2, at=at)).results
        check(of_group(name), gone.error_code)

    await patiently(ask)


async def planned_offsets(
    client: Client, name: str, topic: str, partition: int | None, to: int, *, is_time: bool
) -> list[Row]:
    """Where the group would go on in each partition: topic, partition, before, after.

    `to`: an offset, brought into the log's bounds; or, if `is_time`, a time in ms, EARLIEST or LATEST.
    """
    (found,) = await find_topics(client, [topic])
    numbers = sorted(part.partition_index for part in found.partitions)
    places = [(topic, number) for number in numbers if partition is None or number == partition]
    before = await committed_offsets(client, name, await client.coordinator(name))
    starts, ends = await offsets_at(client, places, EARLIEST), await offsets_at(client, places, LATEST)
    at_time = await offsets_at(client, places, to) if is_time else dict.fromkeys(places, to)
    rows: list[dict[str, Any]] = []
    for place in places:
        after = ends[place] if at_time[place] == NO_OFFSET else at_time[place]
        after = min(max(after, starts[place]), ends[place])
        rows.append(
            {"topic": topic, "partition": place[1], "before": before.get(place), "after": after},
        )
    return rows


async def commit_offsets(client: Client, name: str, offsets: Mapping[Place, int]) -> None:
    """For a group without members; one that has some refuses."""
    at = await client.coordinator(name)
    topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        part = offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(part)
    request = offset_commit.OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=NO_GENERATION,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=topic, partitions=parts)
            for topic, parts in topics.items()
        ],
    )

    async def ask() -> None:
        answer = await client.ask(offset_commit, request, 8, at=at)
        for code in (part.error_code for topic in answer.topics for part in topic.partitions):
            check(of_group(name), code)

    await patiently(ask)
