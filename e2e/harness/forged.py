"""Requests and calls to a service as a process of another role may send them."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from google.protobuf.message import Message
from kafscale.runtime.grpc_identity import Dial
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Reply, RequestMeta
from kafscale.runtime.stream.options import Stream
from kafscale.runtime.transactions.methods import Method
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


def called(address: str, dial: Dial, method: Method[Message, Message], timeout_s: float) -> grpc.StatusCode:
    """What becomes of an empty call of transactions."""

    async def ask() -> grpc.StatusCode:
        async with dial(address, ()) as channel:
            try:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method.path)
                await call(b"", timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    return asyncio.run(ask())
