"""Tells the successor of a released partition that it may claim it now.

One message per successor and turn, however many partitions it names. The law: an offer carries no
right; the receiver claims by the head like anybody else. So an offer that fails is only logged.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import grpc
import grpc.aio
import structlog
from kafscale.rpc.v1 import produce_pb2, produce_pb2_grpc
from kafscale.storage.keys import TopicId

log = structlog.get_logger(__name__)

OFFER_TIMEOUT_S = 2.0
CHANNELS_MAX = 64


class Offers:
    """Queues offers per node and sends them; `address_of` looks a node up in the live view."""

    def __init__(self, address_of: Callable[[int], str | None]) -> None:
        self._address_of = address_of
        self._waiting: defaultdict[int, list[tuple[TopicId, int]]] = defaultdict(list)
        self._some = asyncio.Event()
        self._channels: dict[str, grpc.aio.Channel] = {}

    def add(self, node_id: int, topic_id: TopicId, partition: int) -> None:
        self._waiting[node_id].append((topic_id, partition))
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send what waits now."""
        self._some.clear()
        waiting, self._waiting = self._waiting, defaultdict(list)
        for node_id, keys in waiting.items():
            await self._send(node_id, keys)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _send(self, node_id: int, keys: list[tuple[TopicId, int]]) -> None:
        address = self._address_of(node_id)
        if address is None:
            return
        request = produce_pb2.OfferRequest()
        for topic_id, partition in keys:
            request.partitions.add(topic_id=topic_id, partition=partition)
        stub = produce_pb2_grpc.OwnershipStub(await self._channel(address))  # type: ignore[no-untyped-call]
        try:
            await stub.Offer(request, timeout=OFFER_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.info("offer not delivered", node=node_id, partitions=len(keys), error=error.details())

    async def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            while len(self._channels) >= CHANNELS_MAX:
                oldest = next(iter(self._channels))
                await self._channels.pop(oldest).close()
            self._channels[address] = grpc.aio.insecure_channel(address)
        return self._channels[address]
