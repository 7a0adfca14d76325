"""DescribeLogDirs (35): v0-5.   v2 flexible · v3 error of the answer · v4 bytes of the volume (KIP-827) · v5 cordoned

There is one log directory, the object store. A partition's size is the bytes of its segments: its head counts those
that were ever committed, and its meta those that were deleted, so no manifest is read. Heads list segments and may be
large: they are read in small transactions and not kept. A partition that was never claimed has no head and no bytes.
An object store has no volume, so total and usable bytes are -1. A front door requests only the partitions that it
leads for its clients, so tools that ask every broker count each partition once. Unknown topics and partitions are
left out, as in Kafka. KAFKA_STORAGE_ERROR if etcd cannot be read; INVALID_REQUEST if the answer would be too large
(before v3, which has no field for it, the answer has no directory).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
from kafscale.admin.cluster_view import active, active_by_name
from kafscale.admin.config_answers import LOG_DIRECTORY
from kafscale.admin.context import AdminContext
from kafscale.log.state import read_state, state_reads
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.etcd.client import EtcdError, RangeResult
from kafscale.storage.keys import PartitionKey
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_log_dirs as api

log = structlog.get_logger(__name__)

TOPIC_BYTES, PARTITION_BYTES = 16, 24
"""On the wire, at most; a topic without its name."""
PARTITIONS_PER_READ = 60
"""Two keys each, under etcd's default of 128 operations in a transaction."""
UNKNOWN = -1

Wanted = list[tuple[Topic, list[int]]]


@answering(api)
async def handler(context: AdminContext, request: api.DescribeLogDirsRequest) -> api.DescribeLogDirsResponse:
    wanted = _wanted(context, request)
    answer = api.DescribeLogDirsResponseResult(log_dir=LOG_DIRECTORY)
    room = AnswerRoom(context.settings.answer_bytes_max)
    if not room.take(sum(_size(topic, numbers) for topic, numbers in wanted)):
        return api.DescribeLogDirsResponse(error_code=TOO_LARGE)
    try:
        sizes = await _sizes(context, [(topic.topic_id, n) for topic, own in wanted for n in own])
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


async def _sizes(context: AdminContext, wanted: Sequence[PartitionKey]) -> Mapping[PartitionKey, int]:
    """Bytes of each, UNKNOWN where a head or meta cannot be read. Raises EtcdError."""
    sizes: dict[PartitionKey, int] = {}
    async with context.size_reads:
        for start in range(0, len(wanted), PARTITIONS_PER_READ):
            some = wanted[start : start + PARTITIONS_PER_READ]
            reads = [state_reads(context.keys, *partition) for partition in some]
            found = await context.etcd.ranges([each for pair in reads for each in pair])
            pairs = zip(some, found[::2], found[1::2], strict=True)
            sizes |= {partition: _held(head, meta) for partition, head, meta in pairs}
    return sizes


def _held(head: RangeResult, meta: RangeResult) -> int:
    try:
        return read_state(head, meta).bytes
    except UnreadableValue as error:
        log.error("partition size unreadable", why=str(error))
        return UNKNOWN


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
