"""An answer names each thing once, and has an end: a small request takes little memory, whatever it asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.wire.schema import consumer_group_describe as consumer_schema
from kafscale.wire.schema import consumer_group_heartbeat as beat_schema
from kafscale.wire.schema import delete_groups as delete_schema
from kafscale.wire.schema import describe_groups as describe_schema
from kafscale.wire.schema import list_groups as list_schema
from kafscale.wire.schema import offset_commit as commit_schema
from kafscale.wire.schema import offset_fetch as fetch_schema

from services.coordinator.tests.shell_harness import SETTINGS, Coordinator, known_topic, running
from services.coordinator.tests.test_group_actor import consumer_beat, stable
from services.coordinator.tests.test_offset_handlers import commit_request

PARTITIONS = 20


@pytest.fixture
def room() -> int:
    """Bytes of an answer; tests name fewer than a setting may."""
    return 32 << 20


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace, room: int) -> AsyncIterator[Coordinator]:
    """Groups of both protocols, and offsets of 20 partitions in `g`, of one in `h`."""
    settings = SETTINGS.model_copy(update={"answer_bytes_max": room})
    async with running(etcd, keyspace, settings) as coordinator:
        await known_topic(coordinator)
        for group, count in (("g", PARTITIONS), ("h", 1)):
            request = commit_request(group, partitions=count)
            for partition in request.topics[0].partitions:
                partition.committed_metadata = "m" * 4_000
            await coordinator.ask(offset_commit, commit_schema, request, 8)
        await stable(coordinator, "classic")
        assert (await consumer_beat(coordinator, 0, group="consumer")).error_code == 0
        yield coordinator


async def fetch(one: Coordinator, *asked: tuple[str, list[int] | None]) -> dict[str, tuple[int, list[int]]]:
    """By group: its error, and the partitions that were told of."""

    def topics(indexes: list[int] | None) -> Any:
        if indexes is None:
            return None
        return [fetch_schema.OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]

    groups = [
        fetch_schema.OffsetFetchRequestGroup(group_id=group, topics=topics(indexes))
        for group, indexes in asked
    ]
    answer = await one.ask(offset_fetch, fetch_schema, fetch_schema.OffsetFetchRequest(groups=groups), 8)
    assert len(answer.groups) == len({group.group_id for group in answer.groups})
    return {
        group.group_id: (
            group.error_code,
            [each.partition_index for topic in group.topics for each in topic.partitions],
        )
        for group in answer.groups
    }


async def test_offsets_are_told_once_however_often_they_are_named(one: Coordinator) -> None:
    everything = list(range(PARTITIONS))
    assert await fetch(one, *[("g", None)] * 12) == {"g": (0, everything)}
    assert await fetch(one, ("g", [1, 1, 2]), ("h", [0] * 1_000), ("g", [2, 3])) == {
        "g": (0, [1, 2, 3]),
        "h": (0, [0]),
    }
    assert await fetch(one, ("g", [1]), ("g", None)) == {"g": (0, everything)}


@pytest.mark.parametrize("room", [12_000])
async def test_a_group_whose_offsets_do_not_fit_is_refused_and_the_others_are_told(one: Coordinator) -> None:
    assert await fetch(one, ("g", None), ("h", None)) == {"g": (TOO_LARGE, []), "h": (0, [0])}
    assert await fetch(one, ("g", list(range(10)))) == {"g": (TOO_LARGE, [])}
    assert await fetch(one, ("g", [3, 4])) == {"g": (0, [3, 4])}, "of a large group little may be asked"
    assert await fetch(one, ("g", [3, 4]), ("h", [0])) == {"g": (0, [3, 4]), "h": (TOO_LARGE, [])}
    asked = fetch_schema.OffsetFetchRequest(group_id="g", topics=None)
    assert (await one.ask(offset_fetch, fetch_schema, asked, 7)).error_code == TOO_LARGE


async def describe(one: Coordinator, *names: str) -> list[tuple[str, int]]:
    request = describe_schema.DescribeGroupsRequest(groups=list(names))
    answer = await one.ask(describe_groups, describe_schema, request, 6)
    return [(group.group_id, group.error_code) for group in answer.groups]


async def describe_consumers(one: Coordinator, *names: str) -> list[tuple[str, int]]:
    request = consumer_schema.ConsumerGroupDescribeRequest(group_ids=list(names))
    answer = await one.ask(consumer_group_describe, consumer_schema, request, 0)
    return [(group.group_id, group.error_code) for group in answer.groups]


async def test_groups_are_described_once_however_often_they_are_named(one: Coordinator) -> None:
    assert await describe(one, "classic", "g", "classic") == [("classic", 0), ("g", 0)]
    assert await describe_consumers(one, "consumer", "consumer") == [("consumer", 0)]


@pytest.mark.parametrize("room", [400])
async def test_a_group_whose_description_does_not_fit_is_refused(one: Coordinator) -> None:
    assert await describe(one, "classic", "g") == [("classic", TOO_LARGE), ("g", 0)]
    assert await describe_consumers(one, "consumer") == [("consumer", TOO_LARGE)]


async def test_a_refusal_names_the_setting(one: Coordinator) -> None:
    request = consumer_schema.ConsumerGroupDescribeRequest(group_ids=["consumer"])
    settings = one.context.settings.model_copy(update={"answer_bytes_max": 400})
    one.context = replace(one.context, settings=settings)
    answer = await one.ask(consumer_group_describe, consumer_schema, request, 0)
    assert answer.groups[0].error_message == AnswerRoom(400).refusal
    assert "KAFSCALE_ANSWER_BYTES_MAX" in answer.groups[0].error_message


async def test_names_that_clients_chose_are_part_of_a_description(one: Coordinator) -> None:
    request = beat_schema.ConsumerGroupHeartbeatRequest(
        group_id="named",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[f"{number:0249d}" for number in range(100)],
        topic_partitions=[],
    )
    assert (await one.ask(consumer_group_heartbeat, beat_schema, request, 1)).error_code == 0
    settings = one.context.settings.model_copy(update={"answer_bytes_max": 20_000})
    one.context = replace(one.context, settings=settings)
    assert await describe_consumers(one, "named", "consumer") == [("named", TOO_LARGE), ("consumer", 0)]


@pytest.mark.parametrize("room", [100])
async def test_a_list_of_groups_that_does_not_fit_is_refused(one: Coordinator) -> None:
    """It has no place for the refusal of one group."""
    answer = await one.ask(list_groups, list_schema, list_schema.ListGroupsRequest(), 5)
    assert (answer.error_code, answer.groups) == (TOO_LARGE, [])
    one_type = list_schema.ListGroupsRequest(types_filter=["consumer"])
    answer = await one.ask(list_groups, list_schema, one_type, 5)
    assert [group.group_id for group in answer.groups] == ["consumer"], "fewer fit"


async def test_groups_are_deleted_once_however_often_they_are_named(one: Coordinator) -> None:
    request = delete_schema.DeleteGroupsRequest(groups_names=["g", "g", "h", "g"])
    answer = await one.ask(delete_groups, delete_schema, request, 2)
    assert [(each.group_id, each.error_code) for each in answer.results] == [("g", 0), ("h", 0)]
