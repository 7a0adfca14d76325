"""DescribeLogDirs (35): v0-5.   v2 flexible · v3 error of the answer · v4 bytes of the volume (KIP-827) · v5 cordoned

There is one log directory, the object store. A partition's size is the bytes of its segments, from its head and meta.
An object store has no volume, so total and usable bytes are -1. A front door requests only the partitions that it
leads for its clients, so tools that ask every broker count each partition once. Unknown topics and partitions are
left out, as in Kafka. KAFKA_STORAGE_ERROR if etcd cannot be read; INVALID_REQUEST if the answer would be too large
(before v3, which has no field for it, the answer has no directory).
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from kafscale.admin.cluster_view import active, active_by_name
from kafscale.admin.config_answers import LOG_DIRECTORY
from kafscale.admin.context import AdminContext
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.keys import PartitionKey
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_log_dirs as api

log = structlog.get_logger(__name__)

TOPIC_BYTES, PARTITION_BYTES = 16, 24
"""On the wire, at most; a topic without its name."""

Wanted = list[tuple[Topic, list[int]]]


@answering(api)
async def handler(context: AdminContext, request: api.DescribeLogDirsRequest) -> api.DescribeLogDirsResponse:
    wanted = _wanted(context, request)
    answer = api.DescribeLogDirsResponseResult(log_dir=LOG_DIRECTORY)
    room = AnswerRoom(context.settings.answer_bytes_max)
    if not room.take(sum(_size(topic, numbers) for topic, numbers in wanted)):
        return api.DescribeLogDirsResponse(error_code=TOO_LARGE)
    try:
        sizes = await context.partition_sizes.of((topic.topic_id, n) for topic, own in wanted for n in own)
    except EtcdError as trouble:
        log.warning("partition sizes unavailable", reason=str(trouble))
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        answer.topics = [_topic(topic, own, sizes) for topic, own in wanted]
    return api.DescribeLogDirsResponse(results=[answer])


def _wanted(context: AdminContext, request: api.DescribeLogDirsRequest) -> Wanted:
    if request.topics is None:
        return [(topic, list(range(topic.partitions))) for topic in active(context)]
    asked: dict[str, set[int]] = {}
    for entry in request.topics:
        asked.setdefault(entry.topic, set()).update(entry.partitions)
    wanted: Wanted = []
    for name, numbers in asked.items():
        topic = active_by_name(context, name)
        if topic is not None:
            wanted.append((topic, sorted(n for n in numbers if 0 <= n < topic.partitions)))
    return wanted


def _size(topic: Topic, numbers: list[int]) -> int:
    return TOPIC_BYTES + len(topic.name) + PARTITION_BYTES * len(numbers)


def _topic(
    topic: Topic, numbers: list[int], sizes: Mapping[PartitionKey, int]
) -> api.DescribeLogDirsResponseTopic:
    return api.DescribeLogDirsResponseTopic(
        name=topic.name,
        partitions=[
            api.DescribeLogDirsResponsePartition(
                partition_index=number, partition_size=sizes[topic.topic_id, number]
            )
            for number in numbers
        ],
    )
