"""Topics against a real etcd: creation, deletion with its objects, epochs that never restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kafscale.admin import plan
from kafscale.admin.deletion import Pages
from kafscale.admin.handlers import create_topics, delete_topics
from kafscale.admin.plan import NewTopic, Refused
from kafscale.log.heads import Head, encode_head
from kafscale.storage.history.witness import witnesses_prefix
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.storage.topics import Topic, TopicState, decode_epoch_floor
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import delete_topics as delete_schema

from services.admin.tests.harness import Admin


async def created(admin: Admin, name: str) -> Topic:
    topic = await admin.store.create(NewTopic(name=name), now_ms=1)
    assert isinstance(topic, Topic), topic
    return topic


async def test_of_many_that_create_one_name_at_once_one_succeeds(admin: Admin) -> None:
    outcomes = await asyncio.gather(*(admin.store.create(NewTopic(name="t"), now_ms=1) for _ in range(20)))
    winners = [outcome for outcome in outcomes if isinstance(outcome, Topic)]
    assert len(winners) == 1
    losers = {outcome.error for outcome in outcomes if isinstance(outcome, Refused)}
    assert losers == {ErrorCode.TOPIC_ALREADY_EXISTS}
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.topic_id == winners[0].topic_id


async def test_a_change_that_meets_another_is_made_on_top_of_it(admin: Admin) -> None:
    await created(admin, "t")

    def longer(topic: Topic) -> Topic:
        return replace(topic, partitions=topic.partitions + 1)

    await asyncio.gather(*(admin.store.change("t", longer) for _ in range(5)))
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.partitions == 3 + 5


async def deleted(admin: Admin, name: str) -> None:
    task = asyncio.create_task(admin.deletions.run())
    try:
        request = delete_schema.DeleteTopicsRequest(topic_names=[name], timeout_ms=20_000)
        answer = await admin.ask(delete_topics, delete_schema, request, 5)
        assert answer.responses[0].error_code == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_topic_named_twice_is_not_deleted_and_answered_once(admin: Admin) -> None:
    await created(admin, "t")
    for version in (4, 6):
        asked = [delete_schema.DeleteTopicsRequestTopicState(name="t")] * 3
        request = delete_schema.DeleteTopicsRequest(topics=asked, topic_names=["t"] * 3, timeout_ms=1_000)
        answer = await admin.ask(delete_topics, delete_schema, request, version)
        told = [(result.name, result.error_code) for result in answer.responses]
        assert told == [("t", ErrorCode.INVALID_REQUEST)]
    kept = await admin.store.read("t")
    assert kept is not None
    assert kept.state is TopicState.ACTIVE


@pytest.mark.parametrize("version", range(7))
async def test_every_version_deletes_a_topic(admin: Admin, version: int) -> None:
    await created(admin, "t")
    task = asyncio.create_task(admin.deletions.run())
    asked = delete_schema.DeleteTopicsRequestTopicState(name="t")
    request = delete_schema.DeleteTopicsRequest(topics=[asked], topic_names=["t"], timeout_ms=20_000)
    try:
        answer = await admin.ask(delete_topics, delete_schema, request, version)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [(result.name, result.error_code) for result in answer.responses] == [("t", 0)]
    assert await admin.store.read("t") is None


async def test_a_deleted_topic_leaves_a_mark_and_its_highest_epoch(admin: Admin) -> None:
    topic = await created(admin, "t")
    head = Head(epoch=41, topic="t", next=0)
    await admin.etcd.put(admin.keys.head(topic.topic_id, 0), encode_head(head))
    await admin.etcd.put(admin.keys.head(topic.topic_id, 1), encode_head(replace(head, epoch=7)))
    keys = [
        admin.keys.segment_key("t", 0, 0),
        admin.keys.index_key("t", 0, 0),
        admin.keys.manifest_key(topic.topic_id, 0, 0, "u"),
        admin.keys.snapshot_key(topic.topic_id, 0, 0, "u"),
    ]
    other = admin.keys.segment_key("t2", 0, 0)
    for key in (*keys, other):
        await admin.objects.put(key, [b"x"])

    await deleted(admin, "t")

    mark = deletion_mark(admin.keys, topic.topic_id, admin.clock.wall_ms())
    assert await admin.object_names() == [mark, other]
    found = await admin.etcd.prefix(admin.keys.root())
    left = [kv for kv in found.kvs if not kv.key.startswith(witnesses_prefix(admin.keys))]
    assert [kv.key for kv in left] == [admin.keys.epoch_floor("t")]
    assert decode_epoch_floor(left[0].value) == 41


async def test_a_topic_created_again_starts_above_the_epochs_of_the_old_one(admin: Admin) -> None:
    first = await created(admin, "t")
    await admin.etcd.put(admin.keys.head(first.topic_id, 0), encode_head(Head(epoch=9, topic="t")))
    await deleted(admin, "t")
    second = await created(admin, "t")
    assert second.epoch_floor == 9
    assert second.topic_id != first.topic_id
    await deleted(admin, "t")  # never claimed: the floor must not fall
    assert (await created(admin, "t")).epoch_floor == 9


async def test_the_name_is_taken_until_the_deletion_is_through(admin: Admin) -> None:
    topic = await created(admin, "t")
    marked = await admin.store.change("t", plan.mark_deleting)
    assert isinstance(marked, Topic)
    again = await admin.store.create(NewTopic(name="t"), now_ms=1)
    assert isinstance(again, Refused)
    assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS
    changed = await admin.store.change("t", lambda old: replace(old, partitions=9))
    assert isinstance(changed, Refused)
    assert changed.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stored = await admin.store.read("t")
    assert stored is not None
    assert (stored.state, stored.topic_id) == (TopicState.DELETING, topic.topic_id)


async def test_an_admin_that_comes_late_to_a_deletion_touches_nothing_of_the_next_topic(admin: Admin) -> None:
    await created(admin, "t")
    marked = await admin.store.change("t", plan.mark_deleting)
    assert isinstance(marked, Topic)
    stale = await admin.store.read("t")
    assert stale is not None
    await admin.deletions._finish(stale, Pages())
    assert await admin.store.read("t") is None
    successor = await created(admin, "t")
    live = admin.keys.segment_key("t", 0, 0)
    await admin.objects.put(live, [b"new"])
    await admin.etcd.put(admin.keys.head(successor.topic_id, 0), encode_head(Head(epoch=1, topic="t")))

    await admin.deletions._finish(stale, Pages())

    assert await admin.objects.get(live) == b"new"
    assert await admin.store.read("t") is not None
    assert (await admin.etcd.range(admin.keys.head(successor.topic_id, 0))).kvs


async def late(admin: Admin) -> Admin:
    """Another admin, whose views stay as they are now."""
    other = Admin(admin.etcd, admin.keys)
    await other.topics.refresh()
    return other


@pytest.mark.parametrize(("old", "new"), [("t", "t"), ("a.b", "a_b")])
async def test_a_name_that_another_admin_has_freed_is_not_taken(admin: Admin, old: str, new: str) -> None:
    await created(admin, old)
    other = await late(admin)
    assert isinstance(await other.store.check(NewTopic(name=new)), Refused)
    await deleted(admin, old)
    assert await other.store.check(NewTopic(name=new)) == 3


async def deleted_by_id(admin: Admin, topic: Topic) -> int:
    asked = delete_schema.DeleteTopicsRequestTopicState(name=None, topic_id=topic.topic_id)
    request = delete_schema.DeleteTopicsRequest(topics=[asked], timeout_ms=0)
    return int((await admin.ask(delete_topics, delete_schema, request, 6)).responses[0].error_code)


async def test_an_id_never_means_the_next_topic_of_its_name(admin: Admin) -> None:
    first = await created(admin, "t")
    other = await late(admin)
    await deleted(admin, "t")
    assert await deleted_by_id(other, first) == ErrorCode.UNKNOWN_TOPIC_ID
    await created(admin, "t")
    assert await deleted_by_id(other, first) == ErrorCode.UNKNOWN_TOPIC_ID
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.state is TopicState.ACTIVE


async def test_a_topic_that_another_admin_has_just_made_is_deleted_by_its_id(admin: Admin) -> None:
    other = await late(admin)
    topic = await created(admin, "t")
    assert await deleted_by_id(other, topic) == 0
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.state is TopicState.DELETING


async def test_two_thousand_creations_at_once_all_exist_afterwards(admin: Admin) -> None:
    names = [f"many-{n}" for n in range(2000)]

    async def ask(chunk: list[str]) -> list[int]:
        topics = [
            create_schema.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
            for name in chunk
        ]
        request = create_schema.CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        answer = await admin.ask(create_topics, create_schema, request, 7)
        return [topic.error_code for topic in answer.topics]

    codes = await asyncio.gather(*(ask(names[n : n + 250]) for n in range(0, 2000, 250)))
    assert {code for part in codes for code in part} == {0}
    stored = await admin.etcd.prefix(admin.keys.topics_prefix(), keys_only=True)
    assert {admin.keys.parse_topic(kv.key) for kv in stored.kvs} == set(names)
