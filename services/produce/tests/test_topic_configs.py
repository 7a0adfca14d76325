"""What a topic's configs do to a running instance: keys of compacted topics, the log's time, linger, sizes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kafscale.log.segment import walk_batches
from kafscale.produce.log.contents import LIGHT_BYTES_MAX, Opening
from kafscale.produce.opener import LINE_MAX, PLACES
from kafscale.produce.settings import BUNDLES_PER_S, ProduceSettings, bundles_per_s, limits_of
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, TopicState
from kafscale.testkit.plain_records import plain_batch, plain_record
from kafscale.wire.compression import Compression
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, Record, build_batch, has_valid_crc, read_batch_header
from produce_harness import SEGMENTS, Cluster, batch, change, until

SENT_MS = 1_700_000_000_000


def keyed(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(timestamp=SENT_MS, key=b"k", value=value) for value in values], codec=codec)


HEAVY = bytes(LIGHT_BYTES_MAX + 1)
"""A value that a thread decompresses."""


def heavy(value: bytes = HEAVY) -> bytes:
    return keyed(value, codec=Codec.GZIP)


class Gate:
    """Holds the thread that opens records, until the test lets it go."""

    def __init__(self, unpack: Callable[..., bool]) -> None:
        self._unpack = unpack
        self._open = threading.Event()
        self.entered = threading.Event()

    def unpack(self, opening: Opening, *args: int) -> bool:
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            assert self._open.wait(20), "the test never let go"
        return self._unpack(opening, *args)

    def let_go(self) -> None:
        self._open.set()


@contextmanager
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(Opening.unpack)
    monkeypatch.setattr(Opening, "unpack", lambda opening, *args: found.unpack(opening, *args))
    try:
        yield found
    finally:
        found.let_go()


async def test_by_default_no_producer_is_trusted(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    record = plain_record(0)
    for body in (record + b"z", record[:-1], record * 2):
        answer = await node.send(topic, 0, plain_batch(body, 1, base_ms=SENT_MS))
        assert answer.error is ErrorCode.INVALID_RECORD


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
        large = node.send(topic, 0, heavy())
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
    assert await cluster.log(topic) == [b"warm", HEAVY, b"small"]


async def test_what_waits_behind_a_reader_is_judged_by_the_config_of_its_turn(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    with gate(monkeypatch) as held:
        large = node.send(topic, 0, heavy())
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
        waiting = [node.send(topic, 0, heavy()) for _ in range(2)]
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
        late = node.send(topic, 0, heavy(), timeout_ms=500)  # enough to be read on a busy machine
        await until(held.entered.is_set)
        clock = node.service.ownership.tools.clock
        sent_ms = clock.now_ms()
        await until(lambda: clock.now_ms() > sent_ms + 500, "its deadline has passed")
        held.let_go()
        assert (await late).error is ErrorCode.REQUEST_TIMED_OUT
    assert (await node.send(topic, 0, keyed(b"a"))).base_offset == 1


async def test_requests_held_for_a_claim_are_read_by_a_thread_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    with gate(monkeypatch) as held:
        sent = [node.send(topic, 0, heavy()), node.send(topic, 0, batch(b"no key"))]
        sent.append(node.send(topic, 0, keyed(b"b")))
        await until(held.entered.is_set, "a thread reads the large one")
        held.let_go()
        assert [answer.error for answer in await asyncio.gather(*sent)] == [0, ErrorCode.INVALID_RECORD, 0]
    assert await cluster.log(topic) == [HEAVY, b"b"]


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
    node = await cluster.node(**SEGMENTS)
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
    settings = ProduceSettings(segment_bytes=1 << 20, produce_partition_bytes=2 << 20)

    def limits(**configs: str) -> tuple[int, int, int]:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = Topic(name="t", topic_id=b"1" * 16, partitions=1, configs=named)  # type: ignore[arg-type]
        found = limits_of(topic, settings)
        return found.linger_ms, found.seal_bytes, found.max_message_bytes

    assert limits() == (0, 1 << 20, 1_048_588)
    assert limits(kafscale_linger_ms="30", segment_bytes="5000", max_message_bytes="9") == (
        30,
        5_000,
        9,
    )
    assert limits(kafscale_linger_ms="0", segment_bytes="2000000") == (0, 1 << 20, 1_048_588)
    assert limits(kafscale_linger_ms="-1") == limits()
    # A batch that no partition may ever hold is too large, and not a matter of waiting for room.
    assert limits(max_message_bytes=str(4 << 20))[2] == 2 << 20


def test_only_a_store_that_bills_requests_has_a_budget_of_bundles_by_default() -> None:
    free, billing = MemoryStore(), MemoryStore()
    billing.bills_requests = True
    assert bundles_per_s(ProduceSettings(), free) is None
    assert bundles_per_s(ProduceSettings(), billing) == BUNDLES_PER_S
    chosen = ProduceSettings(bundles_per_s=7)
    assert [bundles_per_s(chosen, store) for store in (free, billing)] == [7, 7]


def test_the_codec_of_the_limits_is_the_topics() -> None:
    def compression(**configs: str) -> Compression | None:
        named = {f"compression.{key.replace('_', '.')}": value for key, value in configs.items()}
        topic = Topic(name="t", topic_id=b"1" * 16, partitions=1, configs=named)  # type: ignore[arg-type]
        return limits_of(topic, ProduceSettings()).compression

    assert compression() is None
    assert compression(type="producer", zstd_level="7") is None
    assert compression(type="uncompressed") == (Codec.NONE, None)
    assert compression(type="snappy") == (Codec.SNAPPY, None)
    assert compression(type="gzip") == (Codec.GZIP, -1)
    assert compression(type="lz4", gzip_level="1") == (Codec.LZ4, 9)
    assert compression(type="zstd", zstd_level="-5") == (Codec.ZSTD, -5)


# --- compression.type -------------------------------------------------------------------------------


async def stored_codecs(cluster: Cluster, topic: Topic) -> list[Codec]:
    """Of each batch of the log."""
    found = []
    for segment in await cluster.segments(topic):
        key = cluster.keyspace.segment_key(topic.name, 0, segment.base)
        body = await cluster.store.get(key, if_match=segment.etag)
        found += [read_batch_header(body, span.position).codec for span in walk_batches(body)]
    return found


async def test_a_change_of_the_codec_is_felt_by_the_next_batch(cluster: Cluster) -> None:
    node = await cluster.node(**SEGMENTS)
    topic = await cluster.topic()
    wanted = ["producer", "zstd", "gzip", "lz4", "snappy", "uncompressed"]
    for number, name in enumerate(wanted):
        await change(cluster, node, topic, configs={"compression.type": name})
        answer = await node.send(topic, 0, batch(b"%d" % number, pid=7, epoch=0, seq=number))
        assert answer.base_offset == number
    assert await stored_codecs(cluster, topic) == [
        Codec.NONE,
        Codec.ZSTD,
        Codec.GZIP,
        Codec.LZ4,
        Codec.SNAPPY,
        Codec.NONE,
    ]
    assert await cluster.log(topic) == [b"%d" % number for number in range(len(wanted))]
    again = await node.send(topic, 0, batch(b"1", pid=7, epoch=0, seq=1))
    assert again.base_offset == 1, "a repeat is recognised by what the producer sent"


async def test_requests_keep_their_order_behind_one_that_is_compressed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that have the codec already, and those of an idempotent producer."""
    node = await cluster.node(**SEGMENTS)
    topic = await cluster.topic(compression_type="zstd")
    await node.send(topic, 0, batch(b"warm"))
    with gate(monkeypatch) as held:
        values = [b"%d" % n * LIGHT_BYTES_MAX for n in range(3)]
        codecs = (Codec.GZIP, Codec.ZSTD, Codec.NONE)
        sent = [
            node.send(topic, 0, build_batch([Record(value=value)], codec=codec, producer_id=7, producer_epoch=0,
                                            base_sequence=n))
            for n, (value, codec) in enumerate(zip(values, codecs, strict=True))
        ]  # fmt: skip
        await until(held.entered.is_set)
        held.let_go()
        assert [answer.base_offset for answer in await asyncio.gather(*sent)] == [1, 2, 3]
    assert await cluster.log(topic) == [b"warm", *values]
    assert await stored_codecs(cluster, topic) == [Codec.ZSTD] * 4


async def test_what_a_batch_takes_as_it_is_stored_counts_until_it_is_answered(cluster: Cluster) -> None:
    node = await cluster.node(memory_bytes=16 << 20)
    topic = await cluster.topic(compression_type="uncompressed", max_message_bytes=str(32 << 20))
    small = build_batch([Record(value=bytes(4 << 20))], codec=Codec.ZSTD)
    assert (await node.send(topic, 0, small)).error is ErrorCode.NONE
    large = build_batch([Record(value=bytes(20 << 20))], codec=Codec.ZSTD)
    refused = await node.send(topic, 0, large)
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "no memory" in (refused.parts[0].error_message or "")
    assert node.runtime.budget.used_bytes == 0
    assert (await node.send(topic, 0, small)).base_offset == 1


async def test_a_line_of_batches_to_be_opened_has_a_bound(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    with gate(monkeypatch) as held:
        sent = [
            node.send(topic, 0, heavy()),
            *(node.send(topic, 0, keyed(b"%d" % n)) for n in range(LINE_MAX + 1)),
        ]
        await until(held.entered.is_set)
        refused = [await answer for answer in sent[LINE_MAX:]]
        assert [answer.error for answer in refused] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
        held.let_go()
        assert [(await answer).base_offset for answer in sent[:LINE_MAX]] == list(range(1, LINE_MAX + 1))


async def test_what_is_small_does_not_wait_behind_what_is_large(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions with bombs hold the one large place and wait for it; a third is served meanwhile."""
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact", partitions=3)
    for number in range(3):
        await node.send(topic, number, keyed(b"warm"))
    bomb = keyed(bytes(PLACES[1][0] + 1), codec=Codec.ZSTD)
    entered, open_again = threading.Event(), threading.Event()
    unpack = Opening.unpack

    def slow(opening: Opening, bytes_max: int) -> bool:
        if bytes_max == PLACES[2][0]:  # with all the room there is
            entered.set()
            assert open_again.wait(20), "the test never let go"
        return unpack(opening, bytes_max)

    monkeypatch.setattr(Opening, "unpack", slow)
    try:
        large = [node.send(topic, number, bomb) for number in (0, 1)]
        await until(entered.is_set)
        async with asyncio.timeout(10):
            assert (await node.send(topic, 2, heavy())).base_offset == 1
            assert (await node.send(topic, 2, heavy(bytes(PLACES[0][0] + 1)))).base_offset == 2
        assert not any(answer.done() for answer in large)
    finally:
        open_again.set()
    assert [(await answer).base_offset for answer in large] == [1, 1]


async def test_what_light_record_sets_take_of_a_turn_is_bounded_together(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of eight megabytes may bring a thousand partitions with a thousand records each: a second in all."""
    node = await cluster.node()
    topic = await cluster.topic(partitions=3)
    for number in range(3):
        await node.send(topic, number, keyed(b"warm"))
    in_parts, steps = [], Opening.steps

    def counted(opening: Opening) -> Iterator[None]:
        in_parts.append(opening)
        return steps(opening)

    monkeypatch.setattr(Opening, "steps", counted)
    monkeypatch.setattr("kafscale.produce.opener.NOTICED_S", 0.0)
    for turn_s, expected in ((60.0, 0), (0.0, 2)):
        monkeypatch.setattr("kafscale.produce.opener.TURN_S", turn_s)
        in_parts.clear()
        answer = await node.send_many([(topic, {number: keyed(b"a") for number in range(3)})])
        assert {part.error_code for part in answer.parts} == {ErrorCode.NONE}
        assert len(in_parts) == expected


async def test_a_request_that_is_given_up_is_opened_no_further(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic(cleanup_policy="compact")
    await node.send(topic, 0, keyed(b"warm"))
    looked = 0
    clock = node.service.ownership.tools.clock
    steps = Opening.steps

    def endless(opening: Opening) -> Iterator[None]:
        nonlocal looked
        while True:
            looked += 1
            yield

    monkeypatch.setattr(Opening, "steps", endless)
    late = node.send(topic, 0, heavy(), timeout_ms=50)
    async with asyncio.timeout(20):
        assert (await late).error is ErrorCode.REQUEST_TIMED_OUT
    seen, sent_ms = looked, clock.now_ms()
    await until(lambda: clock.now_ms() > sent_ms + 20)
    assert 0 < seen == looked
    monkeypatch.setattr(Opening, "steps", steps)
    assert (await node.send(topic, 0, heavy())).base_offset == 1
