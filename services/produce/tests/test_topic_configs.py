"""What a topic's configs do to a running instance: keys of compacted topics, the log's time, linger, sizes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kafscale.produce import opening
from kafscale.produce.log.contents import SMALL_BYTES_MAX, Contents
from kafscale.produce.settings import ProduceSettings, limits_of
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, Record, build_batch, has_valid_crc, read_batch_header
from produce_harness import Cluster, Node, batch, until

SENT_MS = 1_700_000_000_000


def keyed(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(timestamp=SENT_MS, key=b"k", value=value) for value in values], codec=codec)


async def change(cluster: Cluster, node: Node, topic: Topic, **other: object) -> Topic:
    """The topic's record is another from now on, and the instance knows it."""
    changed = replace(topic, **other)  # type: ignore[arg-type]
    put = await cluster.etcd.put(cluster.keyspace.topic(topic.name), encode_topic(changed))
    assert await node.service.ownership.world.topics.wait_revision(put.revision, 5)
    return changed


class Gate:
    """Holds the thread that opens records, until the test lets it go."""

    def __init__(self, read: Callable[[memoryview], Contents]) -> None:
        self._read = read
        self._open = threading.Event()
        self.entered = threading.Event()

    def read(self, record_set: memoryview) -> Contents:
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            assert self._open.wait(20), "the test never let go"
        return self._read(record_set)

    def let_go(self) -> None:
        self._open.set()


@contextmanager
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(opening.contents.read)
    monkeypatch.setattr(opening.contents, "read", found.read)
    try:
        yield found
    finally:
        found.let_go()


async def test_each_record_without_a_key_is_named_from_version_8(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact,delete")
    mixed = build_batch([Record(key=b"k", value=b"a"), Record(value=b"b"), Record(value=b"c")])
    for version in (3, 7, 8, 9, 12, 13):
        (part,) = (await node.send(topic, 0, mixed, version=version)).parts
        assert (part.error_code, part.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        named = [error.batch_index for error in part.record_errors]
        assert named == ([1, 2] if version >= 8 else [])
        assert ("2 of 3" in (part.error_message or "")) == (version >= 8)
    assert (await node.send(topic, 0, keyed(b"a"))).base_offset == 0
    assert await cluster.log(topic) == [b"a"]


async def test_requests_keep_their_order_behind_one_whose_records_a_thread_reads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic, plain = await cluster.topic(cleanup_policy="compact"), await cluster.topic("plain")
    await node.send_many([(topic, {0: keyed(b"warm")}), (plain, {0: batch(b"warm")})])
    with gate(monkeypatch) as held:
        large = node.send(topic, 0, keyed(bytes(SMALL_BYTES_MAX)))
        wrong = node.send(topic, 0, batch(b"no key"))
        small = node.send(topic, 0, keyed(b"small"))
        await until(held.entered.is_set, "a thread reads the large one")
        # Neither the loop nor another topic waits for it.
        assert (await node.send(plain, 0, batch(b"a"))).base_offset == 1
        assert not large.done()
        assert not small.done()
        held.let_go()
        assert [(await sent).base_offset for sent in (large, small)] == [1, 2]
        assert (await wrong).error is ErrorCode.INVALID_RECORD
    assert await cluster.log(topic) == [b"warm", bytes(SMALL_BYTES_MAX), b"small"]


async def test_what_waits_behind_a_reader_is_judged_by_the_config_of_its_turn(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    with gate(monkeypatch) as held:
        large = node.send(topic, 0, keyed(bytes(SMALL_BYTES_MAX)))
        behind = node.send(topic, 0, batch(b"no key"))
        await until(held.entered.is_set)
        await change(cluster, node, topic, configs={})
        held.let_go()
        assert (await large).base_offset == 1
        assert (await behind).base_offset == 2


async def test_a_writer_that_stops_refuses_what_was_still_to_be_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    with gate(monkeypatch) as held:
        waiting = [node.send(topic, 0, keyed(bytes(SMALL_BYTES_MAX))) for _ in range(2)]
        await until(held.entered.is_set)
        await change(cluster, node, topic, state=TopicState.DELETING)
        # Before the thread is back: a later request may find another owner at once.
        async with asyncio.timeout(10):
            assert [(await sent).error for sent in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        held.let_go()
    assert (await cluster.head(topic)).next == 1


async def test_what_nobody_waits_for_any_more_is_not_appended_after_it_was_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    with gate(monkeypatch) as held:
        late = node.send(topic, 0, keyed(bytes(SMALL_BYTES_MAX)), timeout_ms=1)
        await until(held.entered.is_set)
        clock = node.service.ownership.tools.clock
        sent_ms = clock.now_ms()
        await until(lambda: clock.now_ms() > sent_ms + 1, "its deadline has passed")
        held.let_go()
        assert (await late).error is ErrorCode.REQUEST_TIMED_OUT
    assert (await node.send(topic, 0, keyed(b"a"))).base_offset == 1


async def test_requests_held_for_a_claim_are_read_by_a_thread_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    with gate(monkeypatch) as held:
        sent = [node.send(topic, 0, keyed(bytes(SMALL_BYTES_MAX))), node.send(topic, 0, batch(b"no key"))]
        sent.append(node.send(topic, 0, keyed(b"b")))
        await until(held.entered.is_set, "a thread reads the large one")
        held.let_go()
        assert [answer.error for answer in await asyncio.gather(*sent)] == [0, ErrorCode.INVALID_RECORD, 0]
    assert await cluster.log(topic) == [bytes(SMALL_BYTES_MAX), b"b"]


async def test_a_topic_that_becomes_compacted_refuses_records_without_a_key(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"a"))).base_offset == 0
    await change(cluster, node, topic, configs={"cleanup.policy": "compact"})
    assert (await node.send(topic, 0, batch(b"b"))).error is ErrorCode.INVALID_RECORD
    await change(cluster, node, topic, configs={})
    assert (await node.send(topic, 0, batch(b"c"))).base_offset == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_topic_that_takes_the_logs_time_gives_it_and_says_it(cluster: Cluster, codec: Codec) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    (before,) = (await node.send(topic, 0, keyed(b"a", codec=codec))).parts
    assert before.log_append_time_ms == -1
    await change(cluster, node, topic, configs={"message.timestamp.type": "LogAppendTime"})
    began_ms = node.service.ownership.tools.clock.wall_ms()
    (part,) = (await node.send(topic, 0, keyed(b"b", b"c", codec=codec))).parts
    ended_ms = node.service.ownership.tools.clock.wall_ms()
    assert part.base_offset == 1
    assert began_ms <= part.log_append_time_ms <= ended_ms
    segment = (await cluster.segments(topic))[-1]
    body = await cluster.store.get(cluster.keyspace.segment_key("t", 0, segment.base), if_match=segment.etag)
    stored = body[body.index(keyed(b"b", b"c", codec=codec)[61:]) - 61 :]
    header = read_batch_header(stored)
    assert header.is_log_append_time
    assert has_valid_crc(header, stored[: header.size])
    assert (header.base_timestamp, header.max_timestamp) == (SENT_MS, part.log_append_time_ms)
    assert (segment.min_ts, segment.max_ts) == (part.log_append_time_ms,) * 2


def test_the_writers_limits_are_the_topics() -> None:
    settings = ProduceSettings(produce_linger_ms=7, segment_bytes=1 << 20, produce_partition_bytes=2 << 20)

    def limits(**configs: str) -> tuple[int, bool, int, int]:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = Topic(name="t", topic_id=b"1" * 16, partitions=1, configs=named)  # type: ignore[arg-type]
        found = limits_of(topic, settings, MemoryStore())
        return found.linger_min_ms, found.linger_whole, found.seal_bytes, found.max_message_bytes

    assert limits() == (7, False, 1 << 20, 1_048_588)
    assert limits(kafscale_linger_ms="30", segment_bytes="5000", max_message_bytes="9") == (
        30,
        True,
        5_000,
        9,
    )
    assert limits(kafscale_linger_ms="0", segment_bytes="2000000") == (0, False, 1 << 20, 1_048_588)
    assert limits(kafscale_linger_ms="-1") == limits()
    # A batch that no partition may ever hold is too large, and not a matter of waiting for room.
    assert limits(max_message_bytes=str(4 << 20))[3] == 2 << 20
