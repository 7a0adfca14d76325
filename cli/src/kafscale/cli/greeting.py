"""A Kafka client's first question, asked until it is answered: ApiVersions, then Metadata with a broker in it."""

from __future__ import annotations

import asyncio
import struct

from kafscale.wire.apis import ApiKey
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema.metadata import MetadataRequest, MetadataResponse, decode_response, encode_request

METADATA_VERSION = 9
RETRY_S = 0.1
ANSWER_TIMEOUT_S = 5.0
FRAME_BYTES_MAX = 16 * 1024 * 1024
_RESPONSE_HEADER_V1_SIZE = 5  # correlation id and an empty tag section


class BadAnswer(Exception):
    """What listens there does not answer as a Kafka broker does."""


async def answers_as_kafka(host: str, port: int) -> MetadataResponse:
    """Waits until Metadata lists a broker; the caller sets the deadline."""
    while True:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await ask_metadata(host, port)
            if answer.brokers:
                return answer
            await asyncio.sleep(RETRY_S)
        except (OSError, EOFError, TimeoutError, BadAnswer):  # not up yet
            await asyncio.sleep(RETRY_S)


async def ask_metadata(host: str, port: int) -> MetadataResponse:
    """One Metadata request on a connection of its own, for no topic."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        header = encode_request_header(ApiKey.METADATA, METADATA_VERSION, 1, "kafscale-cli")
        body = b"".join(encode_request(MetadataRequest(topics=[]), METADATA_VERSION))
        writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not _RESPONSE_HEADER_V1_SIZE <= size <= FRAME_BYTES_MAX:
            raise BadAnswer(f"a frame of {size} bytes")
        frame = await reader.readexactly(size)
        return decode_response(memoryview(frame)[_RESPONSE_HEADER_V1_SIZE:], METADATA_VERSION)
    finally:
        writer.close()
