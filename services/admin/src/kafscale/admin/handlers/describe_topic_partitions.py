"""DescribeTopicPartitions (75): v0-0 (KIP-966): Metadata in pages

The named topics, or all topics, with at most `response_partition_limit` partitions in one answer. If there are more,
the answer ends with a cursor. A page starts at the cursor's partition, or at the next topic if the cursor's topic was
deleted. UNKNOWN_TOPIC_OR_PARTITION and INVALID_TOPIC_EXCEPTION for named topics; INVALID_REQUEST for a cursor below
partition 0; LEADER_NOT_AVAILABLE while no front door is registered. Creates no topics. Named topics that the client may
not describe are TOPIC_AUTHORIZATION_FAILED, in every page that names them, as in Kafka; of all topics they are left
out.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.access.acl import ResourceType
from kafscale.access.rules import Side, needs_of
from kafscale.admin.cluster_view import active, active_by_name, brokers_of, leader_epoch
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import invalid_topic_name
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.brokers import Broker, leader_of, replicas_of
from kafscale.storage.topics import INTERNAL_TOPICS, Topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_topic_partitions as api

DescribedTopic = api.DescribeTopicPartitionsResponseDescribeTopicPartitionsResponseTopic
NEEDS = needs_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Side.SERVICE)
OF_NAMED, OF_ALL = NEEDS
PARTITIONS_MAX = 2_000
"""In one answer: the default of Kafka's max.request.partition.size.limit."""


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.DescribeTopicPartitionsRequest, meta: RequestMeta
) -> api.DescribeTopicPartitionsResponse:
    if request.cursor is not None and request.cursor.partition_index < 0:
        return _refuse_all(request, ErrorCode.INVALID_REQUEST)
    brokers = await brokers_of(context, meta.listener)
    asker = context.authorization.of(meta)
    asked = _asked(context, request)
    hidden = asker.denied(OF_NAMED if request.topics else OF_ALL, (name for name, _ in asked))
    visible = [(name, topic) for name, topic in asked if name not in hidden] if hidden else asked
    page = _page(context, request, visible, brokers, asker)
    if request.topics:
        page.topics += [DescribedTopic(error_code=OF_NAMED.code, name=name) for name in sorted(hidden)]
    return page


def _refuse_all(
    request: api.DescribeTopicPartitionsRequest, code: ErrorCode
) -> api.DescribeTopicPartitionsResponse:
    """The answer has no error field for the whole. If no topic is named, the cursor's topic gets the error."""
    assert request.cursor is not None, "only a cursor is refused"
    names = [topic.name for topic in request.topics] or [request.cursor.topic_name]
    return api.DescribeTopicPartitionsResponse(
        topics=[DescribedTopic(error_code=code, name=name) for name in names]
    )


def _page(
    context: AdminContext,
    request: api.DescribeTopicPartitionsRequest,
    asked: Sequence[tuple[str, Topic | None]],
    brokers: tuple[Broker, ...],
    asker: Asker,
) -> api.DescribeTopicPartitionsResponse:
    page = api.DescribeTopicPartitionsResponse(topics=[])
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    for name, topic in asked:
        if not room:
            page.next_cursor = api.DescribeTopicPartitionsResponseCursor(topic_name=name)
            break
        if topic is None:
            page.topics.append(
                DescribedTopic(
                    error_code=_why_not(context, name),
                    name=name,
                    is_internal=name in INTERNAL_TOPICS,
                    topic_authorized_operations=asker.operations(ResourceType.TOPIC, name),
                )
            )
            continue
        first = request.cursor.partition_index if request.cursor and request.cursor.topic_name == name else 0
        end = min(topic.partitions, first + room)
        described = [_partition(context, topic, number, brokers) for number in range(first, end)]
        page.topics.append(
            DescribedTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=described,
                topic_authorized_operations=asker.operations(ResourceType.TOPIC, name),
            )
        )
        room -= len(described)
        if end < topic.partitions:
            page.next_cursor = api.DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
            break
    return page


def _asked(
    context: AdminContext, request: api.DescribeTopicPartitionsRequest
) -> list[tuple[str, Topic | None]]:
    """The topics from the cursor on, in the order of names, each name once."""
    begin = request.cursor.topic_name if request.cursor else ""
    if not request.topics:
        return [(topic.name, topic) for topic in active(context) if topic.name >= begin]
    names = sorted({topic.name for topic in request.topics if topic.name >= begin})
    return [(name, active_by_name(context, name)) for name in names]


def _why_not(context: AdminContext, name: str) -> ErrorCode:
    if context.topics.is_damaged(name):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if invalid_topic_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition(
    context: AdminContext, topic: Topic, number: int, brokers: tuple[Broker, ...]
) -> api.DescribeTopicPartitionsResponsePartition:
    if not brokers:
        return api.DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE, partition_index=number, leader_id=-1
        )
    leader = leader_of(topic.topic_id, number, brokers)
    replicas = replicas_of(leader, topic.replicas, brokers)
    return api.DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=leader,
        leader_epoch=leader_epoch(context, topic, number),
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],  # as in Kafka if there are none; null would mean unknown
        last_known_elr=[],
    )
