"""Produce 0-2: message sets become batches, in their order, while the event loop keeps its turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from kafscale.produce import opener
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.topics import Topic
from kafscale.wire.buffers import Steps, T
from kafscale.wire.errors import ErrorCode
from kafscale.wire.message_sets import message_sets_of
from kafscale.wire.records import Codec, Record, build_batch
from kafscale.wire.schema.produce import ProduceRequest
from produce_harness import Cluster, Node, batch, until

OLD = (0, 1, 2)


def finished(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def messages(*values: bytes, magic: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(timestamp=1_700_000_000_000, value=value) for value in values]
    sets = message_sets_of([build_batch(records, codec=codec)], magic, from_offset=0, bytes_max=1 << 30)
    return b"".join(finished(sets))


class Gate:
    """Holds conversions, each in its thread, until it is opened."""

    def __init__(self, convert: Callable[[ProduceRequest], opener.Converted]) -> None:
        self._convert = convert
        self._open = threading.Event()
        self.begun = 0

    def __call__(self, message: ProduceRequest) -> opener.Converted:
        self.begun += 1
        assert self._open.wait(30)
        return self._convert(message)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(opener.convert)
    monkeypatch.setattr(opener, "convert", gate)
    return gate


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_message_sets_of_either_magic_are_stored_as_batches(cluster: Cluster, codec: Codec) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    stored: list[bytes] = []
    for version in OLD:
        for magic in (0, 1):
            answer = await node.send(
                topic, 0, messages(b"a", b"b", magic=magic, codec=codec), version=version
            )
            assert answer.base_offset == len(stored)
            stored += [b"a", b"b"]
    assert await cluster.log(topic) == stored


@pytest.mark.parametrize("version", OLD)
async def test_batches_in_old_versions_are_taken_as_kafka_takes_them(cluster: Cluster, version: int) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"a"), version=version)).base_offset == 0
    both = messages(b"x", magic=1) + batch(b"y")
    assert (await node.send(topic, 0, both, version=version)).error is ErrorCode.INVALID_RECORD
    assert await cluster.log(topic) == [b"a"]


@pytest.mark.parametrize("version", [3, 8, 13])
async def test_message_sets_in_versions_of_batches_are_invalid_records(
    cluster: Cluster, version: int
) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answer = await node.send(topic, 0, messages(b"a", magic=1), version=version)
    assert answer.error is ErrorCode.INVALID_RECORD


async def test_a_malformed_set_is_refused_alone(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic("t", 3)
    good = messages(b"a", magic=0)
    answer = await node.send_many([(topic, {0: good, 1: good[:-1] + b"?", 2: good[:-1]})], version=1)
    assert [part.error_code for part in answer.parts] == [
        0,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert await cluster.log(topic, 0) == [b"a"]
    assert (await node.send(topic, 1, None, version=1)).error is ErrorCode.INVALID_RECORD
    assert (await node.send(topic, 1, b"", version=1)).error is ErrorCode.INVALID_RECORD


async def test_a_set_is_bounded_by_what_its_batch_is_long(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    large = messages(bytes(2 << 20), magic=1)
    assert (await node.send(topic, 0, large, version=2)).error is ErrorCode.MESSAGE_TOO_LARGE


async def test_nothing_overtakes_while_sets_are_converted(cluster: Cluster, gate: Gate) -> None:
    """The first conversion is held in its thread; other clients' batches are taken meanwhile."""
    node = await cluster.node()
    topic = await cluster.topic("t", 2)
    waiting = [node.send(topic, 0, messages(b"%d" % n, magic=n % 2), version=n % 3) for n in range(9)]
    await until(lambda: gate.begun)
    assert (await node.send(topic, 1, batch(b"now"), connection=2)).base_offset == 0
    assert gate.begun == 1
    assert not any(each.done() for each in waiting)
    assert node.metric("conversions_waiting") == 8
    gate.open()
    assert [answer.base_offset for answer in await asyncio.gather(*waiting)] == list(range(9))
    assert await cluster.log(topic) == [b"%d" % n for n in range(9)]


async def test_what_nobody_waits_for_any_more_is_not_converted(cluster: Cluster, gate: Gate) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    first = node.send(topic, 0, messages(b"a", magic=1), version=2)
    late = node.send(topic, 0, messages(b"b", magic=1), version=2, timeout_ms=0)
    await until(lambda: gate.begun)
    gate.open()
    assert (await first).base_offset == 0
    assert (await late).error is ErrorCode.REQUEST_TIMED_OUT
    assert gate.begun == 1
    assert await cluster.log(topic) == [b"a"]


async def test_a_timeout_of_zero_does_not_keep_a_set_out(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"claimed"))
    await node.send(topic, 0, messages(b"a", magic=0), version=0, acks=0, timeout_ms=0)
    assert (await node.send(topic, 0, messages(b"b", magic=0), version=0)).base_offset == 2
    assert await cluster.log(topic) == [b"claimed", b"a", b"b"]


async def test_sets_without_acks_are_stored_and_their_faults_are_told(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    good = messages(b"a", magic=0)
    assert (await node.send(topic, 0, good, version=0, acks=0)).status is ReplyStatus.NO_REPLY
    told = await node.send(topic, 0, good[:-1], version=0, acks=0)
    assert told.error is ErrorCode.CORRUPT_MESSAGE
    assert (await node.send(topic, 0, good, version=0, acks=2)).error is ErrorCode.INVALID_REQUIRED_ACKS
    assert (await node.send(topic, 0, good, version=0)).base_offset == 1


async def test_memory_is_reserved_for_what_came_and_what_is_made_of_it(cluster: Cluster, gate: Gate) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"claimed"))
    before = used(node)
    set_ = messages(bytes(100_000), magic=1)
    sent = node.send(topic, 0, set_, version=2)
    await until(lambda: gate.begun)
    assert used(node) - before >= 2 * len(set_)
    gate.open()
    await sent
    assert used(node) == before


def used(node: Node) -> int:
    return node.runtime.budget.used_bytes


async def test_an_unknown_topic_is_unknown_to_old_versions_too(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    stranger = Topic(name="no", topic_id=topic.topic_id, partitions=1)
    answer = await node.send(stranger, 0, messages(b"a", magic=0), version=0)
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_of_topics_hold_for_message_sets_too(cluster: Cluster) -> None:
    node = await cluster.node()
    compacted = await cluster.topic("c", cleanup_policy="compact")
    keyless = await node.send(compacted, 0, messages(b"a", magic=1), version=2)
    assert keyless.error is ErrorCode.INVALID_RECORD
    stamped = await cluster.topic("s", message_timestamp_type="LogAppendTime")
    for version in OLD:
        (part,) = (await node.send(stamped, 0, messages(b"a", magic=version % 2), version=version)).parts
        assert part.base_offset == version
        assert (part.log_append_time_ms > 0) == (version == 2), "only v2 has the field"
