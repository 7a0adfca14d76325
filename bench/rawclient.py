"""A client that sends one Produce request to many partitions and waits, as no library lets one do."""

from __future__ import annotations

import asyncio
import struct
import time

from kafscale.wire.apis import ApiKey
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


async def one_request_to_many_partitions(
    bootstrap: str, topic: str, partitions: int, requests: int
) -> list[float]:
    """Milliseconds of each request, one at a time; the first two are not counted."""
    host, port = bootstrap.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[
                    ProduceRequestPartition(
                        index=index, records=build_batch([Record(timestamp=1, key=None, value=VALUE)])
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )
    body = encode_request_header(ApiKey.PRODUCE, VERSION, 1, "bench") + b"".join(
        encode_request(request, VERSION)
    )
    times = []
    for _ in range(requests):
        begin = time.perf_counter()
        writer.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = decode_response(memoryview(await reader.readexactly(size))[HEADER_V1:], VERSION)
        times.append((time.perf_counter() - begin) * 1000)
        errors = {part.error_code for one in answer.responses for part in one.partition_responses}
        assert errors == {0}, errors
    writer.close()
    return times[2:]
