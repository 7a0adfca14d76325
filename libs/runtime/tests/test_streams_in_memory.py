"""The two ends of a stream, as they are, over gRPC in memory and in virtual time: cuts, deaths and late replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Reply, ReplyStatus
from kafscale.runtime.stream.options import Stream
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.testkit.clock import LoopClock, run_in_virtual_time
from kafscale.testkit.memory_grpc.channel import open_channel
from kafscale.testkit.memory_grpc.network import SILENCE_S, Network
from kafscale.testkit.memory_grpc.server import open_server
from stream_harness import PRODUCE, SLOW, echo, meta

REQUESTS = 200
FRONT_DOOR, SERVICE = "frontdoor", "produce"


class World:
    """A front door and a service, a millisecond apart."""

    def __init__(self) -> None:
        self.network = Network(lambda *_: 0.001)
        self.held: list[InboundRequest] = []
        self.clock = LoopClock()
        self.streams = StreamServer(
            bulk={PRODUCE: echo, SLOW: self.held.append}, control={}, clock=self.clock
        )
        self.address = ""

    async def start(self) -> None:
        server = open_server(self.network, SERVICE)
        self.streams.add_to(server)
        self.address = f"produce:{server.add_insecure_port(self.address or 'produce:0')}"
        await server.start()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[StreamClient]:
        client = StreamClient(self.address, kind=Stream.BULK, clock=self.clock, dial=self._dial)
        try:
            yield client
        finally:
            await client.close()

    def _dial(self, target: str, _options: object) -> grpc.aio.Channel:
        return open_channel(self.network, FRONT_DOOR, target)


def told(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def tell() -> None:
        world = World()
        await world.start()
        await story(world)

    run_in_virtual_time(tell())


def test_requests_arrive_in_order_and_each_has_its_reply() -> None:
    async def story(world: World) -> None:
        async with world.client() as client:
            pending = [client.send(meta(), (b"%d" % number,)) for number in range(REQUESTS)]
            replies = [await one.future for one in pending]
        assert [bytes(reply.body) for reply in replies] == [b"echo:%d" % number for number in range(REQUESTS)]

    told(story)


class CountingClock(LoopClock):
    asked = 0

    def now_ms(self) -> int:
        self.asked += 1
        return super().now_ms()


def test_a_stream_on_which_nobody_waits_does_nothing_and_watches_again_over_the_next_request() -> None:
    async def story(world: World) -> None:
        world.clock = clock = CountingClock()
        async with world.client() as client:
            await client.send(meta(), (b"1",)).future
            await asyncio.sleep(1)
            asked = clock.asked
            await asyncio.sleep(3_600)
            assert clock.asked == asked
            late = client.send(meta(SLOW, age_budget_ms=50), (b"2",))
            async with asyncio.timeout(1):
                assert (await late.future).status is ReplyStatus.LOST

    told(story)


def test_a_service_that_dies_has_perhaps_executed_what_was_sent_and_certainly_not_what_comes_later() -> None:
    async def story(world: World) -> None:
        async with world.client() as client:
            sent = client.send(meta(SLOW), (b"1",))
            while not world.held:
                await asyncio.sleep(0.001)
            world.network.drop(SERVICE, "killed")
            assert (await sent.future).status is ReplyStatus.LOST
            await asyncio.sleep(0.5)
            assert (await client.send(meta(), (b"2",)).future).status is ReplyStatus.REFUSED
            await world.start()
            await asyncio.sleep(5)
            assert (await client.send(meta(), (b"3",)).future).status is ReplyStatus.FINAL

    told(story)


def test_a_cut_that_heals_delays_replies_and_one_that_does_not_loses_them() -> None:
    async def story(world: World) -> None:
        loop = asyncio.get_running_loop()
        async with world.client() as client:
            await client.send(meta(), (b"0",)).future
            world.network.cut(FRONT_DOOR, SERVICE)
            loop.call_later(SILENCE_S - 1, world.network.heal, FRONT_DOOR, SERVICE)
            began_s = loop.time()
            late: Reply = await client.send(meta(), (b"1",)).future
            assert (late.status, bytes(late.body)) == (ReplyStatus.FINAL, b"echo:1")
            assert loop.time() - began_s >= SILENCE_S - 1
            world.network.cut(FRONT_DOOR, SERVICE)
            assert (await client.send(meta(), (b"2",)).future).status is ReplyStatus.LOST

    told(story)


def test_a_service_that_leaves_answers_what_was_sent() -> None:
    async def story(world: World) -> None:
        async with world.client() as client:
            sent = client.send(meta(SLOW), (b"1",))
            while not world.held:
                await asyncio.sleep(0.001)
            world.streams.refuse_new()
            leaving = asyncio.ensure_future(world.streams.until_idle())
            await asyncio.sleep(1)
            world.held[0].reply((b"late",))
            assert bytes((await sent.future).body) == b"late"
            await leaving
            assert (await client.send(meta(), (b"2",)).future).status is ReplyStatus.REFUSED

    told(story)
