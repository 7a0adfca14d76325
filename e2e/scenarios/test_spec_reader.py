"""The bucket after a clean stop, read by the published formats alone.

Law: below each head's `next`, an independent reader finds every acknowledged record at its offset, nothing that
was never sent, and no offset twice or missing; every segment and index has the specified form, every CRC is right.
The records were in slices of bundles until `kafscale settle`: a reader of the bucket finds them after it.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_program import find_etcd

from e2e.checkers.spec_reader import FoundSegment, read_partition
from e2e.harness.bundles import settle
from e2e.harness.cluster import Cluster
from e2e.harness.inside import Inside

PARTITIONS = 3
RECORDS = 3_000
ROUNDS = 50
IN_A_ROUND = RECORDS // ROUNDS // PARTITIONS
"""Records of a partition. The producer waits for them before its next round."""
LINGER_MS = 1_000
"""A batch waits for the end of its round, which flushes it. A batch of one small record would not be compressed."""
SEGMENTS_MIN = 12
SEGMENT_BYTES = 16_384
"""The batches of three or more rounds of a partition, so most segments are settled from several slices."""
TIMESTAMP = 1_700_000_000_000
TOPIC = "for-any-reader"
FLUSH_TIMEOUT_S = 120

Place = tuple[int, int]
"""partition, offset"""
Content = tuple[bytes | None, bytes | None, int]
"""key, value, timestamp"""


@dataclass(slots=True)
class Written:
    sent: set[Content] = field(default_factory=set)
    acknowledged: dict[Place, Content] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A data directory whose cluster was stopped, and what its clients know."""

    data_dir: Path
    written: Written
    ends: dict[int, int]

    def segments(self, partition: int) -> list[FoundSegment]:
        return read_partition(self.data_dir / "objects", "default", TOPIC, partition)

    def found(self) -> dict[Place, Content]:
        return {
            (part, record.offset): (record.key, record.value, record.timestamp)
            for part, end in self.ends.items()
            for segment in self.segments(part)
            for batch in segment.batches
            for record in batch.records
            if record.offset < end
        }


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("spec"),
        env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS), "KAFSCALE_SEGMENT_BYTES": str(SEGMENT_BYTES)},
    )
    cluster.start()
    try:
        written = Written()
        for codec in ("none", "gzip"):
            produce(cluster.bootstrap, codec, written)
        settle(cluster, TOPIC)
        assert cluster.stop() == 0
    finally:
        cluster.kill()
    return Stopped(cluster.data_dir, written, ends_of(cluster.data_dir))


def produce(bootstrap: str, codec: str, written: Written) -> None:
    """In rounds, so that there are many segments; with and without keys and values."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": codec == "gzip",
            "linger.ms": LINGER_MS,
            "log_level": 0,
        }
    )
    errors: list[str] = []

    def send(number: int) -> None:
        key = None if number % 7 == 0 else f"{codec}-{number % 100}".encode()
        value = None if number % 11 == 0 else f"{codec}:{number}:".encode() + b"v" * (number % 300)
        content = (key, value, TIMESTAMP + number * 17 % 5000)

        def delivered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                written.acknowledged[partition, offset] = content
            else:
                errors.append(str(error))

        written.sent.add(content)
        producer.produce(TOPIC, value, key, number % PARTITIONS, on_delivery=delivered, timestamp=content[2])

    for first in range(0, RECORDS, RECORDS // ROUNDS):
        for number in range(first, first + RECORDS // ROUNDS):
            send(number)
        assert producer.flush(FLUSH_TIMEOUT_S) == 0
    assert errors == []


def ends_of(data_dir: Path) -> dict[int, int]:
    """`next` of each head, from an etcd started on the stopped data directory."""
    binary = find_etcd(data_dir / "tools", print)
    server = EtcdProcess(binary, data_dir / "etcd", log_path=data_dir / "run" / "log" / "etcd-again.log")
    asyncio.run(server.start())
    try:
        return {part: head.next for part, head in Inside(server.endpoint).heads(TOPIC).items()}
    finally:
        server.kill()


def test_acknowledged_is_found_and_found_was_sent(stopped: Stopped) -> None:
    found = stopped.found()
    assert len(stopped.written.acknowledged) == 2 * RECORDS
    assert {place: found.get(place) for place in stopped.written.acknowledged} == stopped.written.acknowledged
    assert set(found.values()) <= stopped.written.sent


def test_segments_follow_one_another_up_to_next(stopped: Stopped) -> None:
    for part, end in stopped.ends.items():
        segments = stopped.segments(part)
        assert len(segments) >= SEGMENTS_MIN, "too few segments to say anything"
        settled = [segment for segment in segments if len(offsets(segment)) > IN_A_ROUND]
        assert len(settled) > len(segments) // 2, "only slices that are settled bring rounds together"
        reached = 0
        for segment in segments:
            assert segment.base == reached, f"partition {part}"
            assert offsets(segment) == list(range(segment.base, segment.last + 1)), f"partition {part}"
            reached = segment.last + 1
        assert reached == end, f"partition {part}"


def offsets(segment: FoundSegment) -> list[int]:
    return [record.offset for batch in segment.batches for record in batch.records]


def test_epochs_never_fall_and_the_codec_is_the_producers(stopped: Stopped) -> None:
    codecs: dict[int, int] = defaultdict(int)
    for part in stopped.ends:
        epochs = [batch.epoch for segment in stopped.segments(part) for batch in segment.batches]
        assert epochs == sorted(epochs)
        assert epochs[0] >= 0
        for segment in stopped.segments(part):
            for batch in segment.batches:
                codecs[batch.codec] += len(batch.records)
    assert codecs == {0: RECORDS, 1: RECORDS}


def test_the_bucket_holds_nothing_of_the_topic_but_segments_with_their_indexes(stopped: Stopped) -> None:
    folder = stopped.data_dir / "objects" / "default" / TOPIC
    names = sorted(path.relative_to(folder) for path in folder.rglob("segment-*"))
    stems = {name.with_suffix("") for name in names}
    assert names == sorted(stem.with_suffix(end) for stem in stems for end in (".index", ".kfs"))


def test_the_reader_itself_sees_a_flipped_bit(stopped: Stopped, tmp_path: Path) -> None:
    source = sorted((stopped.data_dir / "objects" / "default" / TOPIC / "0").glob("segment-*.kfs"))[0]
    target = tmp_path / "default" / TOPIC / "0"
    target.mkdir(parents=True)
    data = bytearray(source.read_bytes())
    data[len(data) // 2] ^= 1
    (target / source.name).write_bytes(data)
    (target / source.with_suffix(".index").name).write_bytes(source.with_suffix(".index").read_bytes())
    with pytest.raises((AssertionError, gzip.BadGzipFile)):
        read_partition(tmp_path, "default", TOPIC, 0)
