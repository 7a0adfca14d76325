"""OffsetFetch (9): v0-10.   v2 all topics · v5 leader epochs · v7 require_stable · v8 several groups · v9 member epochs
· v10 topic ids

An offset that was never committed is -1 without an error, also for an unknown group (never GROUP_ID_NOT_FOUND, at which
clients stop). In v0 it is -1 with UNKNOWN_TOPIC_OR_PARTITION, as in the protocol guide and every Kafka with v0: clients
of v0 read this as no offset, but might seek to -1 without the error. Each read of etcd proves that this instance still
owns the slot. If a group's record cannot be read, its offsets are returned, and only its members are not checked. A
group's error is in its partitions in v0-1, and above them from v2. UNSTABLE_OFFSET_COMMIT for a partition for which a
transaction has an offset pending, if the request requires stable offsets; and for one whose offset or topic record
cannot be read: consumers wait and retry, while -1 would make them start over. A new commit replaces an unreadable
offset. INVALID_REQUEST for a group whose offsets do not fit into the answer. TOPIC_AUTHORIZATION_FAILED for topics that
the client may not describe; if it asks for all topics, they are left out. Never COORDINATOR_NOT_AVAILABLE, on which
Java's consumer throws; NOT_COORDINATOR makes it retry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.consumer.model import Fetch
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.commits import UnreadableOffset
from kafscale.coordinator.groups.pending import Unstable
from kafscale.coordinator.groups.topic_lookup import TopicLookup
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import PartitionKey
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_fetch as api

NEEDS = needs_of(ApiKey.OFFSET_FETCH, Side.SERVICE)
OF_NAMED, OF_ALL = NEEDS
SEVERAL_GROUPS_FROM = 8
GROUP_ERRORS_ABOVE_FROM = 2
NO_OFFSET_IS_NO_ERROR_FROM = 1
TOPIC_IDS_FROM = 10
NO_OFFSET = -1
NONE_UNSTABLE = Unstable(frozenset(), False)

Found = CommittedOffset | UnreadableOffset


@dataclass(frozen=True, slots=True)
class Offsets:
    """Of one group. `unstable`: the partitions that the request must not get, for it requires stable offsets."""

    committed: Mapping[PartitionKey, Found]
    unstable: Unstable

    def of(self, where: PartitionKey) -> Found | None:
        return UnreadableOffset() if where in self.unstable else self.committed.get(where)


@dataclass(frozen=True, slots=True)
class _Reading:
    context: CoordinatorContext
    version: int
    topics: TopicLookup
    asker: Asker
    room: AnswerRoom
    stable: bool


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.OffsetFetchRequest, meta: RequestMeta
) -> api.OffsetFetchResponse:
    version = meta.api_version
    asker = context.authorization.of(meta)
    topics = TopicLookup(context.topics, asker, OF_NAMED, by_id=version >= TOPIC_IDS_FROM)
    reading = _Reading(
        context, version, topics, asker, AnswerRoom(context.settings.answer_bytes_max), request.require_stable
    )
    if version >= SEVERAL_GROUPS_FROM:
        groups = [await _group(reading, asked) for asked in _once(request.groups)]
        return api.OffsetFetchResponse(groups=groups)
    found = await _group(reading, _as_group(request))
    return _single_group(found, version)


def _as_group(request: api.OffsetFetchRequest) -> api.OffsetFetchRequestGroup:
    topics = request.topics
    return api.OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            api.OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics
        ],
    )


def _once(groups: Sequence[api.OffsetFetchRequestGroup]) -> list[api.OffsetFetchRequestGroup]:
    """Each group once, with all topics that the request names for it, and with the first member."""
    found: dict[str, api.OffsetFetchRequestGroup] = {}
    for asked in groups:
        known = found.setdefault(asked.group_id, asked)
        if known is not asked and known.topics is not None:
            known.topics = None if asked.topics is None else [*known.topics, *asked.topics]
    return list(found.values())


def _topics_once(topics: Sequence[api.OffsetFetchRequestTopics]) -> list[api.OffsetFetchRequestTopics]:
    """Each topic once, with each of its partitions once."""
    found: dict[tuple[str, bytes], dict[int, None]] = {}
    for asked in topics:
        found.setdefault((asked.name, asked.topic_id), {}).update(dict.fromkeys(asked.partition_indexes))
    return [
        api.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(indexes))
        for (name, topic_id), indexes in found.items()
    ]


async def _group(reading: _Reading, asked: api.OffsetFetchRequestGroup) -> api.OffsetFetchResponseGroup:
    if asked.topics is not None:
        asked.topics = _topics_once(asked.topics)
    try:
        offsets = await _offsets(reading, asked)
        if asked.topics is None:
            topics = await _all(reading, offsets)
        else:
            topics = [await _topic(reading, topic, offsets) for topic in asked.topics]
    except GroupFailed as failed:
        error = failed.error
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR
        answer = api.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
        if reading.version < GROUP_ERRORS_ABOVE_FROM:
            answer.topics = [_refused(topic, error) for topic in asked.topics or ()]
        return answer
    return api.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


async def _offsets(reading: _Reading, asked: api.OffsetFetchRequestGroup) -> Offsets:
    """Raises GroupFailed."""
    context = reading.context
    held = context.groups.slot(asked.group_id)
    unreadable = context.groups.is_unreadable(asked.group_id)
    actor = None if unreadable else context.groups.find(asked.group_id)
    if actor is not None and not context.groups.is_classic(actor):
        reply = await actor.ask(
            lambda token: Fetch(token=token, member_id=asked.member_id, member_epoch=asked.member_epoch)
        )
        if reply.error is not ErrorCode.NONE:
            raise GroupFailed(reply.error)
    await context.commits.settled(held, asked.group_id)
    unstable = NONE_UNSTABLE
    if reading.stable:  # looked at before the read, which compares the claim
        unstable = context.transaction_offsets.unstable(held, asked.group_id)
    found = await context.commits.read(held, asked.group_id)
    if isinstance(found, ErrorCode):
        raise GroupFailed(found)
    return Offsets(found, unstable)


def _reserve(room: AnswerRoom, offsets: Collection[Found | None]) -> None:
    """Reserves room in the answer for a topic's partitions. Raises GroupFailed."""
    metadata = sum(len(found.metadata.encode()) for found in offsets if isinstance(found, CommittedOffset))
    if not room.take((1 + len(offsets)) * ENTRY_BYTES + metadata):
        raise GroupFailed(TOO_LARGE)


async def _topic(
    reading: _Reading, asked: api.OffsetFetchRequestTopics, offsets: Offsets
) -> api.OffsetFetchResponseTopics:
    topic = await reading.topics.find(asked.name, asked.topic_id)
    if topic is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        raise GroupFailed(topic)
    if topic is ErrorCode.UNKNOWN_TOPIC_ID or topic is OF_NAMED.code:
        return _refused(asked, topic)
    if topic is ErrorCode.KAFKA_STORAGE_ERROR:
        return _refused(asked, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    none = ErrorCode.NONE
    if reading.version < NO_OFFSET_IS_NO_ERROR_FROM:
        none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    indexes = asked.partition_indexes
    found = [
        None if isinstance(topic, ErrorCode) else offsets.of((topic.topic_id, index)) for index in indexes
    ]
    _reserve(reading.room, found)
    return api.OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[_partition(index, offset, none) for index, offset in zip(indexes, found, strict=True)],
    )


def _refused(asked: api.OffsetFetchRequestTopics, error: ErrorCode) -> api.OffsetFetchResponseTopics:
    return api.OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            api.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, error_code=error
            )
            for index in asked.partition_indexes
        ],
    )


async def _all(reading: _Reading, offsets: Offsets) -> list[api.OffsetFetchResponseTopics]:
    """Every offset of every existing topic that the client may describe."""
    _reserve(reading.room, offsets.committed.values())
    lookup = TopicLookup(reading.context.topics, reading.asker, OF_ALL, by_id=True)
    topics: dict[bytes, api.OffsetFetchResponseTopics] = {}
    for topic_id, index in sorted(offsets.committed):
        topic = await lookup.find("", topic_id)
        if topic is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise GroupFailed(topic)
        if isinstance(topic, ErrorCode):
            continue
        answered_topic = topics.setdefault(
            topic_id, api.OffsetFetchResponseTopics(name=topic.name, topic_id=topic_id)
        )
        answered_topic.partitions.append(_partition(index, offsets.of((topic_id, index))))
    return list(topics.values())


def _partition(
    index: int, offset: Found | None, none: ErrorCode = ErrorCode.NONE
) -> api.OffsetFetchResponsePartitions:
    """`none`: the error for an offset that was never committed."""
    if offset is None:
        return api.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, error_code=none
        )
    if isinstance(offset, UnreadableOffset):
        return api.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    return api.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _single_group(group: api.OffsetFetchResponseGroup, version: int) -> api.OffsetFetchResponse:
    """The response up to v7, which has one group."""
    return api.OffsetFetchResponse(
        error_code=group.error_code if version >= GROUP_ERRORS_ABOVE_FROM else ErrorCode.NONE,
        topics=[
            api.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    api.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
