"""A service with the calls of transactions on a port of this machine, and views of instances that a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kafscale.rpc.v1.transactions_pb2 import (
    EndReply,
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
)
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import GrpcIdentity, dial_by
from kafscale.runtime.grpc_server import GrpcFace
from kafscale.runtime.health import Health
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import ServiceParts
from kafscale.runtime.tracing import Tracer
from kafscale.runtime.transactions.channels import Channels
from kafscale.runtime.transactions.serving import ServesEnds, ServesJoins
from kafscale.storage.membership.records import Instance, InstanceState
from kafscale.storage.slots import SLOTS


@dataclass
class Joins:
    """A coordinator that answers with what it was asked. While `held` is set, its answers wait for it."""

    over_reply: OverReply = field(default_factory=lambda: OverReply(over=True, slots=range(SLOTS)))
    held: asyncio.Event | None = None
    asked: list[JoinRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    async def join(self, request: JoinRequest) -> JoinReply:
        self.asked.append(request)
        self.arrived.set()
        if self.fails:
            raise RuntimeError("a bug")
        try:
            if self.held is not None:
                await self.held.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return JoinReply(number=request.producer_id)

    async def over(self, request: OverRequest) -> OverReply:
        return self.over_reply


@dataclass
class Ends:
    asked: list[EndRequest] = field(default_factory=list)

    async def end(self, request: EndRequest) -> EndReply:
        self.asked.append(request)
        done = [
            EndReply.Done(producer_id=end.producer_id, number=end.number, participants=end.participants)
            for end in request.ends
        ]
        return EndReply(done=done)


class Seen:
    """A live view."""

    def __init__(self, *instances: Instance) -> None:
        self._instances = instances
        self._listeners: list[Callable[[], None]] = []

    def instances(self) -> tuple[Instance, ...]:
        return self._instances

    def by_id(self, instance_id: str) -> Instance | None:
        return next((each for each in self._instances if each.id == instance_id), None)

    def by_node(self, node_id: int) -> Instance | None:
        return next((each for each in self._instances if each.node_id == node_id), None)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def set(self, *instances: Instance) -> None:
        self._instances = instances
        for listener in self._listeners:
            listener()


def registered(role: str, address: str, node_id: int = 1) -> Instance:
    return Instance(
        role=role, node_id=node_id, boot_id=f"b{node_id}", address=address, state=InstanceState.READY
    )


def join_request(producer_id: int = 7) -> JoinRequest:
    return JoinRequest(transactional_id="payments", producer_id=producer_id, epoch=3, add=True)


@asynccontextmanager
async def face_of(
    role: str, identity: GrpcIdentity | None = None, address: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[GrpcFace, str]]:
    """A service that offers nothing yet, and its address."""
    clock = SystemClock()
    face = GrpcFace(
        health=Health(role),
        clock=clock,
        watch=LoopWatch(clock),
        memory_bytes=1 << 26,
        metrics=Metrics(role),
    )
    port = await face.start(address, identity)
    try:
        yield face, f"127.0.0.1:{port}"
    finally:
        await face.stop()


@asynccontextmanager
async def serving(
    role: str,
    joins: ServesJoins | None = None,
    ends: ServesEnds | None = None,
    identity: GrpcIdentity | None = None,
    address: str = "127.0.0.1:0",
    tracer: Tracer | None = None,
) -> AsyncIterator[str]:
    """The address of a service that serves these."""
    async with face_of(role, identity, address) as (face, found):
        face.offer(ServiceParts(joins=joins, ends=ends), tracer)
        yield found


@asynccontextmanager
async def channels_to(live: Seen, identity: GrpcIdentity | None = None) -> AsyncIterator[Channels]:
    begun: list[asyncio.Task[None]] = []
    channels = Channels(live, dial_by(identity), lambda work: begun.append(asyncio.create_task(work)))
    try:
        yield channels
    finally:
        await channels.close()
        await asyncio.gather(*begun)
