"""A topic's record and the view of all topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.schema import UnknownSchema, UnreadableValue
from kafscale.storage.topics import Topic, TopicState, TopicsView, decode_topic, encode_topic
from kafscale.store.v1 import store_pb2

int32 = st.integers(0, 2**31 - 1)
topics = st.builds(
    Topic,
    name=st.just("orders"),
    topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
    partitions=st.integers(1, 2**31 - 1),
    configs=st.dictionaries(st.sampled_from(["cleanup.policy", "kfs.linger.ms"]), st.text()),
    replication_factor=st.integers(0, 3),
    state=st.sampled_from(TopicState),
    epoch_floor=int32,
    created_ms=st.integers(0, 2**62),
    config_version=int32,
    mod_revision=int32,
)


def topic(name: str, number: int, **changes: int) -> Topic:
    return Topic(name=name, topic_id=TopicId(bytes([number]) * 16), partitions=changes.get("partitions", 1))


@given(topics)
def test_a_record_comes_back_as_it_went_in(given_topic: Topic) -> None:
    assert decode_topic("orders", encode_topic(given_topic), given_topic.mod_revision) == given_topic


def test_what_was_not_set_is_kafkas_default_and_stays_unset() -> None:
    plain = topic("orders", 1)
    assert (plain.retention_ms, plain.retention_bytes) == (604_800_000, -1)
    assert (plain.segment_bytes, plain.max_message_bytes) == (1_073_741_824, 1_048_588)
    assert decode_topic("orders", encode_topic(plain)).configs == {}


def test_what_was_set_counts() -> None:
    configs = {"retention.ms": "-1", "retention.bytes": "5", "segment.bytes": "6", "max.message.bytes": "7"}
    record = Topic(name="o", topic_id=TopicId(bytes(16)), partitions=1, configs=configs)
    read = decode_topic("o", encode_topic(record))
    assert (read.retention_ms, read.retention_bytes, read.segment_bytes, read.max_message_bytes) == (
        -1,
        5,
        6,
        7,
    )
    stored = store_pb2.TopicConfig.FromString(encode_topic(record))
    assert (stored.retention_ms, stored.retention_bytes, stored.segment_bytes) == (-1, 5, 6)


@pytest.mark.parametrize("schema", [0, 2])
def test_a_record_of_another_schema_is_refused_with_a_sentence(schema: int) -> None:
    value = store_pb2.TopicConfig(schema=schema).SerializeToString()
    with pytest.raises(UnknownSchema, match=f"'orders' has schema {schema}, this version of KafScale reads"):
        decode_topic("orders", value)


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xff",
        b"",
        store_pb2.TopicConfig(schema=1, topic_id=b"short", partitions=1, state="ACTIVE").SerializeToString(),
        store_pb2.TopicConfig(schema=1, topic_id=bytes(16), state="ACTIVE").SerializeToString(),
        store_pb2.TopicConfig(
            schema=1, topic_id=bytes(16), partitions=1, state="ACTIVE", configs={"retention.ms": "a week"}
        ).SerializeToString(),
        # A state that this version has no name for: field 10, value 9.
        store_pb2.TopicConfig(schema=1, topic_id=bytes(16), partitions=1).SerializeToString() + b"\x50\x09",
    ],
)
def test_a_record_that_is_none_is_unreadable_whatever_is_wrong_with_it(value: bytes) -> None:
    with pytest.raises(UnreadableValue):
        decode_topic("orders", value)


async def test_a_damaged_topic_is_neither_there_nor_is_its_name_free(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    view = TopicsView(etcd, keyspace)
    await etcd.put(keyspace.topic("bad"), b"\xff")
    await etcd.put(keyspace.topics_prefix() + b"\xff", b"no topic has that name")
    await etcd.put(keyspace.topic("good"), encode_topic(topic("good", 1)))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.run())
        await view.ready()
        assert [t.name for t in view.all()] == ["good"]
        assert view.damaged() == ("bad",)
        assert view.is_damaged("bad")
        assert not view.is_damaged("good")
        assert not view.is_damaged("none")
        again = await etcd.put(keyspace.topic("bad"), encode_topic(topic("bad", 2)))
        assert await view.wait_revision(again.revision, 5)
        assert not view.is_damaged("bad")
        assert view.by_name("bad") is not None
        task.cancel()


async def test_the_view_follows_creation_change_deletion_and_a_new_topic_of_the_name(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    first, second = topic("orders", 1), topic("orders", 2)
    view = TopicsView(etcd, keyspace)
    told: list[tuple[str, bytes | None]] = []
    view.subscribe(lambda name, found: told.append((name, found.topic_id if found else None)))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.run())
        await view.ready()
        assert view.all() == ()
        key = keyspace.topic("orders")
        made = await etcd.put(key, encode_topic(first))
        assert await view.wait_revision(made.revision, 5)
        found = view.by_name("orders")
        assert found is not None
        assert found.mod_revision == made.revision
        assert view.by_id(first.topic_id) is found
        # Deleted and made again before the view looks: the old id must be gone.
        await etcd.delete(key)
        again = await etcd.put(key, encode_topic(second))
        assert await view.wait_revision(again.revision, 5)
        assert view.by_id(first.topic_id) is None
        assert view.by_id(second.topic_id) is view.by_name("orders")
        assert [t.name for t in view.all()] == ["orders"]
        task.cancel()
    assert told == [
        ("orders", first.topic_id),
        ("orders", None),
        ("orders", second.topic_id),
    ]


class Reads:
    """Reads of all topics that begin and end when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.may_end = asyncio.Semaphore(0)
        self.failing = False

    async def __call__(self) -> None:
        self.begun.release()
        await self.may_end.acquire()
        if self.failing:
            raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer", "nowhere")


@pytest.fixture
async def reads() -> Reads:
    return Reads()


@pytest.fixture
async def asked(
    etcd: EtcdClient, keyspace: Keyspace, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TopicsView]:
    """A running view whose reads for `confirm` are `reads`."""
    view = TopicsView(etcd, keyspace)
    monkeypatch.setattr(view, "refresh", reads)
    monkeypatch.setattr("kafscale.storage.topics.READ_PAUSE_S", 0.0)
    running = asyncio.create_task(view.run())
    yield view
    running.cancel()
    await asyncio.wait([running])


async def test_one_read_serves_all_that_asked_before_it_began_and_none_that_asked_later(
    asked: TopicsView, reads: Reads
) -> None:
    order: list[str] = []
    asked.confirm(lambda known: order.append(f"first {known}"))
    asked.confirm(lambda known: order.append(f"second {known}"))
    await reads.begun.acquire()
    late = asyncio.create_task(asked.confirmed(recent_s=60))
    reads.may_end.release()
    await reads.begun.acquire()  # of the second read
    assert order == ["first True", "second True"]
    assert not late.done()
    reads.may_end.release()
    assert await late


async def test_a_recent_read_is_enough_where_the_caller_says_so(asked: TopicsView, reads: Reads) -> None:
    first = asyncio.create_task(asked.confirmed(recent_s=60))
    await reads.begun.acquire()
    reads.may_end.release()
    assert await first
    answers: list[bool] = []
    asked.confirm(answers.append, recent_s=60)
    assert answers == [True], "at once, and without a read"
    strict = asyncio.create_task(asked.confirmed())
    await reads.begun.acquire()
    reads.may_end.release()
    assert await strict


async def test_an_etcd_that_does_not_answer_confirms_nothing(
    asked: TopicsView, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads.failing = True
    reads.may_end.release()
    assert not await asked.confirmed(recent_s=60)
    monkeypatch.setattr("kafscale.storage.topics.READ_TIMEOUT_S", 0.01)
    assert not await asked.confirmed(recent_s=60), "a read that failed is no recent read, and this one hangs"


async def test_a_caller_that_left_takes_nothing_from_the_others(asked: TopicsView, reads: Reads) -> None:
    gone = asyncio.create_task(asked.confirmed())
    staying = asyncio.create_task(asked.confirmed())
    await reads.begun.acquire()
    gone.cancel()
    reads.may_end.release()
    assert await staying


async def test_only_an_active_topic_that_has_the_partition_is_found(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    leaving = Topic(
        name="leaving", topic_id=TopicId(bytes([2]) * 16), partitions=1, state=TopicState.DELETING
    )
    await etcd.put(keyspace.topic("orders"), encode_topic(topic("orders", 1, partitions=2)))
    await etcd.put(keyspace.topic("leaving"), encode_topic(leaving))
    view = TopicsView(etcd, keyspace)
    running = asyncio.create_task(view.run())
    assert await view.confirmed()
    orders = view.by_name("orders")
    assert orders is not None
    assert view.find("orders", 1) is orders
    assert view.find(orders.topic_id, 1) is orders
    assert view.find("orders", 2) is view.find("orders", -1) is None
    assert view.find("leaving") is view.find(leaving.topic_id) is view.find("nobody") is None
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(
    ("asked", "in_sync", "replicas"),
    [(0, None, 1), (1, None, 1), (3, None, 3), (3, "2", 3), (0, "2", 2), (1, "2", 2), (0, "9", 3)],
)
def test_a_topic_shows_the_replicas_that_were_asked_for_and_those_that_must_be_in_sync(
    asked: int, in_sync: str | None, replicas: int
) -> None:
    configs = {} if in_sync is None else {"min.insync.replicas": in_sync}
    record = Topic(
        name="o", topic_id=TopicId(bytes(16)), partitions=1, configs=configs, replication_factor=asked
    )
    assert decode_topic("o", encode_topic(record)).replicas == replicas
