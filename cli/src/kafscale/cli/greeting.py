"""A Kafka client's first question, asked until it is answered: Metadata with a broker in it."""

from __future__ import annotations

import asyncio

from kafscale.cli.kafka.connection import BadAnswer, Connection
from kafscale.wire.schema import metadata

METADATA_VERSION = 9
RETRY_S = 0.1
ANSWER_TIMEOUT_S = 5.0


async def answers_as_kafka(host: str, port: int) -> metadata.MetadataResponse:
    """Waits until Metadata lists a broker; the caller sets the deadline."""
    while True:
        try:
            answer = await ask_metadata(host, port)
            if answer.brokers:
                return answer
            await asyncio.sleep(RETRY_S)
        except (OSError, EOFError, TimeoutError, BadAnswer):  # not up yet
            await asyncio.sleep(RETRY_S)


async def ask_metadata(host: str, port: int) -> metadata.MetadataResponse:
    """One Metadata request on a connection of its own, for no topic."""
    connection = await Connection.open(host, port)
    try:
        request = metadata.MetadataRequest(topics=[])
        return await connection.ask(metadata, request, METADATA_VERSION, timeout_s=ANSWER_TIMEOUT_S)
    finally:
        connection.close()
