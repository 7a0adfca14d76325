"""A cluster of 10,000 topics with 39,000 partitions, 2,200 groups and 2,000 ACLs, without producers and consumers.

Their keys are written as the services write them, while the cluster is stopped. The topics that groups read have real
segments. The heads of the others name segments without objects, which no list reads. A quarter of the committed offsets
is behind its log; a third of the groups has a member.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal
from kafscale.log.heads import EpochStart, Head, Meta, Seg, encode_head, encode_meta
from kafscale.operations.clusters import Cluster, opened
from kafscale.operations.target import Target
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.access_records import encode_acl
from kafscale.storage.etcd.client import Put, Txn
from kafscale.storage.groups import (
    ClassicGroup,
    ClassicMember,
    ClassicPhase,
    ClassicProtocol,
    CommittedOffset,
    GroupRecord,
    encode_committed,
    encode_group,
)
from kafscale.storage.keys import TopicId
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import Topic, encode_topic
from kafscale.testkit.logbuilder import LogBuilder
from kafscale.wire.records import Record, build_batch

TOPICS: Final = 10_000
PARTITIONS: Final = 39_000
WIDE: Final = "wide"
WIDE_PARTITIONS: Final = 1_000
WIDTHS: Final = (1, 2, 3, 6, 7)
READ_TOPICS: Final = 500
GROUPS: Final = 2_200
PLACES_PER_GROUP: Final = 10
BEHIND_EVERY: Final = 4
MEMBER_EVERY: Final = 3
ACLS: Final = 2_000
RECORDS: Final = 200
"""Of each partition that has a segment."""
PUTS_PER_TXN: Final = 100
MEMBER_TIMEOUT_MS: Final = 30 * 60_000
MINUTE_MS: Final = 60_000

Place = tuple[Topic, int]


async def build(data_dir: Path) -> None:
    """In the data directory of a cluster that was started once and is stopped."""
    topics = list(_topics())
    assert len(topics) == TOPICS
    assert sum(topic.partitions for topic in topics) == PARTITIONS
    read = [topic for topic in topics if topic.name != WIDE][:READ_TOPICS]
    now_ms = time.time_ns() // 1_000_000
    async with opened(Target(data_dir, None), lambda _: None) as cluster:
        await _write(cluster, _topic_puts(cluster, topics))
        await _write(cluster, _idle_puts(cluster, topics, {topic.name for topic in read}, now_ms))
        await _fill(cluster, read, now_ms)
        await _write(cluster, _group_puts(cluster, read, now_ms))
        await _write(cluster, _acl_puts(cluster))


async def _write(cluster: Cluster, puts: Iterable[Put]) -> None:
    left = iter(puts)
    while some := tuple(islice(left, PUTS_PER_TXN)):
        await cluster.etcd.txn(Txn(success=some))


def _topics() -> Iterator[Topic]:
    left = PARTITIONS - WIDE_PARTITIONS
    yield _topic(WIDE, WIDE_PARTITIONS)
    widths = cycle(WIDTHS)
    for number in range(1, TOPICS - 1):
        width = next(widths)
        left -= width
        yield _topic(f"topic-{number:05}", width)
    yield _topic(f"topic-{TOPICS - 1:05}", left)


def _topic(name: str, partitions: int) -> Topic:
    return Topic(name=name, topic_id=TopicId(uuid.uuid4().bytes), partitions=partitions)


def _topic_puts(cluster: Cluster, topics: Iterable[Topic]) -> Iterator[Put]:
    return (Put(cluster.keys.topic(topic.name), encode_topic(topic)) for topic in topics)


def _idle_puts(cluster: Cluster, topics: Iterable[Topic], filled: set[str], now_ms: int) -> Iterator[Put]:
    """Each log has one segment, whose objects do not exist."""
    for topic in topics:
        if topic.name in filled:
            continue
        seg = Seg(
            base=0,
            last_delta=999,
            size=1_000_000,
            etag=f"{1:032x}",
            crc32c=1,
            index_size=28,
            index_etag=f"{2:032x}",
            epoch=1,
            min_ts=now_ms - MINUTE_MS,
            max_ts=now_ms,
            records=1_000,
            batches=10,
            created_ms=now_ms,
        )
        head = Head(
            epoch=1,
            topic=topic.name,
            next=1_000,
            lso=1_000,
            tail=(seg,),
            epochs=(EpochStart(epoch=1, start=0),),
            bytes=seg.size,
            max_ts=now_ms,
        )
        for partition in range(topic.partitions):
            yield Put(cluster.keys.head(topic.topic_id, partition), encode_head(head))
            yield Put(cluster.keys.meta(topic.topic_id, partition), encode_meta(Meta()))


async def _fill(cluster: Cluster, topics: Iterable[Topic], now_ms: int) -> None:
    """One segment in each partition, of the last three hours."""
    step_ms = 3 * 60 * MINUTE_MS // RECORDS
    countries = cycle(("NL", "DE", "FR"))
    records = [
        Record(
            timestamp=now_ms - (RECORDS - number) * step_ms,
            key=b"customer-%d" % number,
            value=json.dumps({"order": number, "country": next(countries), "total": number * 7}).encode(),
        )
        for number in range(RECORDS)
    ]
    batch = build_batch(records)
    for topic in topics:
        for partition in range(topic.partitions):
            builder = LogBuilder(cluster.etcd, cluster.keys, cluster.store, topic, partition)
            builder.head = Head(epoch=1, topic=topic.name)
            await builder.append_raw([batch])
            meta = Put(cluster.keys.meta(topic.topic_id, partition), encode_meta(Meta()))
            await cluster.etcd.txn(Txn(success=(meta,)))


def _group_puts(cluster: Cluster, read: Sequence[Topic], now_ms: int) -> Iterator[Put]:
    places = [(topic, partition) for topic in read for partition in range(topic.partitions)]
    for number in range(GROUPS):
        name = f"group-{number:04}"
        slot = slot_of(name)
        first = number * PLACES_PER_GROUP
        own = [places[at % len(places)] for at in range(first, first + PLACES_PER_GROUP)]
        group = _group(name, own, has_member=number % MEMBER_EVERY == 0, now_ms=now_ms)
        yield Put(cluster.keys.group(slot, name), encode_group(group))
        for at, (topic, partition) in enumerate(own):
            behind = (number + at) % BEHIND_EVERY == 0
            offset = number % RECORDS if behind else RECORDS
            commit = CommittedOffset(offset=offset, leader_epoch=1, commit_ms=now_ms)
            key = cluster.keys.committed(slot, name, topic.topic_id, partition)
            yield Put(key, encode_committed(commit))


def _group(name: str, own: Sequence[Place], *, has_member: bool, now_ms: int) -> GroupRecord:
    if not has_member:
        state = ClassicGroup(generation=1, protocol_type="consumer")
        return GroupRecord(group=name, state=state, empty_since_ms=now_ms)
    topics = sorted({topic.name for topic, _ in own})
    wanted = struct.pack(">hi", 0, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)
    given = struct.pack(">hi", 0, len(own))
    for topic, partition in own:
        given += _text(topic.name) + struct.pack(">ii", 1, partition)
    member = ClassicMember(
        id=f"{name}-member",
        client_id=name,
        client_host="/10.0.0.1",
        session_timeout_ms=MEMBER_TIMEOUT_MS,
        rebalance_timeout_ms=MEMBER_TIMEOUT_MS,
        protocols=(ClassicProtocol(name="range", metadata=wanted),),
        assignment=given + struct.pack(">i", -1),
    )
    state = ClassicGroup(
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader=member.id,
        phase=ClassicPhase.STABLE,
        members=(member,),
    )
    return GroupRecord(group=name, state=state)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _acl_puts(cluster: Cluster) -> Iterator[Put]:
    keys = AccessKeys(cluster.keys)
    for number in range(ACLS):
        acl = AclBinding(
            resource_type=ResourceType.TOPIC,
            pattern_type=PatternType.PREFIXED if number % 5 == 0 else PatternType.LITERAL,
            resource_name=f"topic-{number:05}",
            principal=Principal(f"User:app-{number // 4}"),
            host="*",
            operation=Operation.READ if number % 2 else Operation.WRITE,
            permission=Permission.ALLOW,
        )
        yield Put(keys.acl(acl), encode_acl(acl))
