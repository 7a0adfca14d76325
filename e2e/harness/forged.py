"""A request to a service as a process may send it that is no front door."""

from __future__ import annotations

import asyncio

from kafscale.runtime.grpc_identity import Dial
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Reply, RequestMeta
from kafscale.runtime.stream.options import Stream
from kafscale.wire.apis import ApiKey


def forged(address: str, dial: Dial) -> Reply:
    """DeleteTopics in the name of an administrator."""

    async def ask() -> Reply:
        client = StreamClient(address, kind=Stream.CONTROL, dial=dial)
        try:
            meta = RequestMeta(
                connection_id=1, api_key=ApiKey.DELETE_TOPICS, api_version=6, principal="User:admin"
            )
            return await client.send(meta, (b"",)).future
        finally:
            await client.close()

    return asyncio.run(ask())
