"""A client that sends one Produce request to many partitions and waits, as no library lets one do."""

from __future__ import annotations

import asyncio
import struct
import time

from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import encode_request_header
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    decode_response,
    encode_request,
)

VERSION = 9
HEADER_V1 = 5
VALUE = b"x" * 1024
NOT_THERE_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
THERE_TIMEOUT_S = 30.0
THERE_RETRY_S = 0.2


async def one_request_to_many_partitions(
    bootstrap: str, topic: str, partitions: int, requests: int
) -> list[float]:
    """Milliseconds of each request, one at a time, from the third that every partition took."""
    host, port = bootstrap.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = _request(topic, partitions)
    # Apache Kafka answers a CreateTopics before its leaders are there.
    deadline = time.monotonic() + THERE_TIMEOUT_S
    while errors := await _exchange(reader, writer, frame) - {ErrorCode.NONE}:
        assert errors <= NOT_THERE_YET, errors
        assert time.monotonic() < deadline, errors
        await asyncio.sleep(THERE_RETRY_S)
    times = []
    for _ in range(1 + requests):
        begin = time.perf_counter()
        errors = await _exchange(reader, writer, frame)
        times.append((time.perf_counter() - begin) * 1000)
        assert errors == {ErrorCode.NONE}, errors
    writer.close()
    return times[1:]


def _request(topic: str, partitions: int) -> bytes:
    """The frame of a Produce request with one record for each partition."""
    record_set = build_batch([Record(timestamp=1, key=None, value=VALUE)])
    parts = [ProduceRequestPartition(index=index, records=record_set) for index in range(partitions)]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequestTopic(name=topic, partition_data=parts)],
    )
    header = encode_request_header(ApiKey.PRODUCE, VERSION, 1, "bench")
    body = header + b"".join(encode_request(request, VERSION))
    return struct.pack(">i", len(body)) + body


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> set[int]:
    """The error codes that the partitions are answered with."""
    writer.write(frame)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    answer = decode_response(memoryview(await reader.readexactly(size))[HEADER_V1:], VERSION)
    return {part.error_code for topic in answer.responses for part in topic.partition_responses}
