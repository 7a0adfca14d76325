"""CreateTopics and CreatePartitions as clients see them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog
from kafscale.admin.handlers import create_partitions, create_topics
from kafscale.admin.plan import NewTopic, grow
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_partitions as partitions_schema
from kafscale.wire.schema import create_topics as create_schema

from services.admin.tests.harness import Admin

UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_create_topics_answers_one_result_per_topic_and_validate_only_creates_none(
    admin: Admin,
) -> None:
    def topic(name: str, partitions: int = 2) -> create_schema.CreateTopicsRequestTopic:
        return create_schema.CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=-1
        )

    request = create_schema.CreateTopicsRequest(topics=[topic("a"), topic("b", 0), topic("c"), topic("c")])
    for validate_only in (True, False):
        request.validate_only = validate_only
        answer = await admin.ask(create_topics, create_schema, request, 7)
        codes = {result.name: result.error_code for result in answer.topics}
        assert codes == {"a": 0, "b": ErrorCode.INVALID_PARTITIONS, "c": ErrorCode.INVALID_REQUEST}
        assert (await admin.store.read("a") is None) == validate_only
    assert await admin.store.read("c") is None


async def test_no_topic_is_made_past_60_percent_of_etcds_quota_and_topics_that_are_there_change_on(
    admin: Admin,
) -> None:
    await admin.store.create(NewTopic(name="old", partitions=1), 0)
    full = replace(await admin.etcd.status(), db_bytes_in_use=61 << 20, quota_bytes=100 << 20)
    admin.space.looked(full)
    topic = create_schema.CreateTopicsRequestTopic(name="new", num_partitions=1, replication_factor=-1)
    request = create_schema.CreateTopicsRequest(topics=[topic])
    refused = (await admin.ask(create_topics, create_schema, request, 7)).topics[0]
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "etcd is over 60% full" in (refused.error_message or "")
    assert await admin.store.read("new") is None
    changed = await admin.store.change("old", lambda topic: grow(topic, 2))
    assert isinstance(changed, Topic)
    admin.space.looked(replace(full, db_bytes_in_use=50 << 20))
    assert (await admin.ask(create_topics, create_schema, request, 7)).topics[0].error_code == 0


async def test_a_topic_that_is_only_validated_is_answered_as_if_it_were_made(admin: Admin) -> None:
    config = create_schema.CreateTopicsRequestTopicConfig(name="segment.bytes", value="1048576")
    topic = create_schema.CreateTopicsRequestTopic(
        name="t", num_partitions=2, replication_factor=-1, configs=[config]
    )
    request = create_schema.CreateTopicsRequest(topics=[topic])
    answers = []
    for validate_only in (True, False):
        request.validate_only = validate_only
        answer = await admin.ask(create_topics, create_schema, request, 7)
        answers.append((answer.topics[0].num_partitions, answer.topics[0].configs))
    assert answers[0] == answers[1]
    assert ("segment.bytes", "1048576") in [(each.name, each.value) for each in answers[0][1]]


@pytest.mark.parametrize(("count", "code"), [(5_000, 0), (5_001, ErrorCode.POLICY_VIOLATION)])
async def test_a_request_makes_no_more_partitions_than_kafkas(admin: Admin, count: int, code: int) -> None:
    topics = [
        create_schema.CreateTopicsRequestTopic(name=name, num_partitions=number, replication_factor=-1)
        for name, number in (("a", 5_000), ("b", count))
    ]
    answer = await admin.ask(
        create_topics, create_schema, create_schema.CreateTopicsRequest(topics=topics), 7
    )
    assert [result.error_code for result in answer.topics] == [code, code]
    for name in ("c", "d"):
        await admin.store.create(NewTopic(name=name, partitions=1), now_ms=1)
    wanted = [
        partitions_schema.CreatePartitionsRequestTopic(name=name, count=number, assignments=None)
        for name, number in (("c", 5_001), ("d", count + 1))
    ]
    request = partitions_schema.CreatePartitionsRequest(topics=wanted)
    grown = await admin.ask(create_partitions, partitions_schema, request, 3)
    assert [result.error_code for result in grown.results] == [code, code]


async def test_partitions_are_added_and_never_removed(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for count, expected in ((5, 0), (5, ErrorCode.INVALID_PARTITIONS), (4, ErrorCode.INVALID_PARTITIONS)):
        asked = partitions_schema.CreatePartitionsRequestTopic(name="t", count=count, assignments=None)
        request = partitions_schema.CreatePartitionsRequest(topics=[asked])
        answer = await admin.ask(create_partitions, partitions_schema, request, 3)
        assert answer.results[0].error_code == expected
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.partitions == 5


async def grown(
    admin: Admin, name: str, count: int, *, assigned: int | None = None, validate_only: bool = False
) -> int:
    """The error of one CreatePartitions, with assignments for that many partitions."""
    assignments = None
    if assigned is not None:
        assignments = [partitions_schema.CreatePartitionsRequestAssignment([n]) for n in range(assigned)]
    asked = partitions_schema.CreatePartitionsRequestTopic(name=name, count=count, assignments=assignments)
    request = partitions_schema.CreatePartitionsRequest(topics=[asked], validate_only=validate_only)
    answer = await admin.ask(create_partitions, partitions_schema, request, 3)
    return int(answer.results[0].error_code)


@pytest.mark.parametrize(
    ("count", "assigned", "expected"),
    [
        (5, None, 0),
        (5, 2, 0),
        (5, 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, None, ErrorCode.INVALID_PARTITIONS),
        (10_001, None, ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_more_partitions_may_be_only_validated(
    admin: Admin, count: int, assigned: int | None, expected: int
) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for validate_only in (True, False):
        assert await grown(admin, "t", count, assigned=assigned, validate_only=validate_only) == expected
        stored = await admin.store.read("t")
        assert stored is not None
        assert stored.partitions == (count if not expected and not validate_only else 3)


async def test_a_topic_that_is_not_there_gets_no_partitions(admin: Admin) -> None:
    for validate_only in (True, False):
        assert await grown(admin, "no", 9, validate_only=validate_only) == UNKNOWN_TOPIC_OR_PARTITION


async def test_assigned_brokers_are_logged_and_ignored(admin: Admin) -> None:
    assignments = [
        create_schema.CreateTopicsRequestReplicaAssignment(partition_index=n, broker_ids=[40 + n])
        for n in (1, 0)
    ]
    asked = create_schema.CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    request = create_schema.CreateTopicsRequest(topics=[asked])
    with structlog.testing.capture_logs() as logs:
        answer = await admin.ask(create_topics, create_schema, request, 7)
        assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 2)
        assert await grown(admin, "t", 3, assigned=1) == 0
    told = [(entry["topic"], entry["partitions"]) for entry in logs if "assignments" in entry["event"]]
    assert told == [("t", 2), ("t", 3)]


@pytest.mark.parametrize("version", range(8))
async def test_every_version_creates_a_topic(admin: Admin, version: int) -> None:
    topic = create_schema.CreateTopicsRequestTopic(name="t", num_partitions=2, replication_factor=1)
    request = create_schema.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
    answer = await admin.ask(create_topics, create_schema, request, version)
    assert [(result.name, result.error_code) for result in answer.topics] == [("t", 0)]
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.partitions == 2
