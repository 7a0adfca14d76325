"""Front doors tell each other what clients have used, by numbers, once a second."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from door_fakes import FakeLive, FakeStream, instance
from door_harness import until
from kafscale.access.quota import QuotaKey
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.quotas import usage_peers
from kafscale.frontdoor.quotas.usage_page import PEERS_MAX, SharedUsage, UsagePage, meter_number, page_bytes
from kafscale.frontdoor.quotas.usage_peers import USAGE, UsagePeers, decode_totals, encode_totals
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import StreamServer
from kafscale.storage.membership.members import Instance

PRODUCER, ALICE = QuotaKey.PRODUCER_BYTE_RATE, ("alice", None)
NUMBER = meter_number(PRODUCER, ALICE)
OWN, OTHER, THIRD = (instance(Backend.FRONTDOOR, node) for node in (1, 2, 3))


class Door:
    """One front door, whose streams to others the test answers."""

    def __init__(self) -> None:
        self.live = FakeLive()
        self.page = UsagePage(memoryview(bytearray(page_bytes(1))), 1)
        self.usage = SharedUsage(self.page, 0)
        self.usage.counted(PRODUCER, ALICE, 1)  # it has such clients
        self.streams: dict[str, FakeStream] = {}
        self.peers = UsagePeers(self.page, self.live, OWN.id, self._connect)

    def _connect(self, to: Instance, kind: Stream) -> FakeStream:
        return self.streams.setdefault(to.id, FakeStream(to.address, kind))

    async def told(self, other: Instance, totals: dict[int, float]) -> None:
        """Asks, and the other one answers."""
        await self.peers.ask()
        self.streams[other.id].sent[-1].reply(encode_totals(totals))
        await asyncio.sleep(0)

    @property
    def news(self) -> list[float]:
        return [amount for _, _, _, amount in self.usage.news()]


def test_totals_are_read_as_they_were_written() -> None:
    totals = {1: 0.5, 2**64 - 1: 1e18}
    assert decode_totals(encode_totals(totals)) == totals
    assert decode_totals(encode_totals(totals) + b"rest") == totals
    assert decode_totals(b"") == {}


async def test_what_another_front_door_counts_counts_here_once_and_only_from_the_first_answer_on() -> None:
    door = Door()
    door.live.set(OWN, OTHER)
    await door.told(OTHER, {NUMBER: 1_000.0})
    assert door.news == []
    await door.told(OTHER, {NUMBER: 1_500.0, 7: 3.0})
    assert door.news == [500.0]
    await door.told(OTHER, {NUMBER: 1_500.0})
    assert door.news == []
    await door.told(OTHER, {NUMBER: 20.0})
    assert door.news == [], "its meter began again"
    await door.told(OTHER, {NUMBER: 30.0})
    assert door.news == [10.0]


async def test_a_front_door_is_asked_again_when_it_has_answered_and_a_lost_answer_costs_only_time() -> None:
    door = Door()
    door.live.set(OWN, OTHER)
    await door.told(OTHER, {NUMBER: 0.0})
    await door.peers.ask()
    await door.peers.ask()
    stream = door.streams[OTHER.id]
    assert len(stream.sent) == 2
    stream.sent[-1].reply(status=ReplyStatus.EXPIRED)
    await asyncio.sleep(0)
    await door.told(OTHER, {NUMBER: 70.0})
    assert door.news == [70.0]
    assert {sent.meta.api_key for sent in stream.sent} == {USAGE}


async def test_only_other_front_doors_that_are_ready_are_asked_and_those_that_left_are_let_go() -> None:
    door = Door()
    door.live.set(OWN, OTHER, instance(Backend.FRONTDOOR, 3, ready=False))
    await door.peers.ask()
    assert set(door.streams) == {OTHER.id}
    door.live.set(OWN, THIRD)
    await door.peers.ask()
    assert door.streams[OTHER.id].closed
    assert set(door.streams) == {OTHER.id, THIRD.id}


async def test_beyond_their_bound_front_doors_are_left_out_until_one_leaves() -> None:
    door = Door()
    many = [instance(Backend.FRONTDOOR, node) for node in range(2, PEERS_MAX + 3)]
    door.live.set(OWN, *many)
    await door.peers.ask()
    assert len(door.streams) == PEERS_MAX
    door.live.set(OWN, *many[1:])
    await door.peers.ask()
    assert len(door.streams) == PEERS_MAX + 1


async def test_front_doors_learn_from_each_other_over_real_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_peers, "ASK_EVERY_S", 0.05)
    one, two = Door(), Door()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    StreamServer(bulk={}, control={USAGE: two.peers.answer}).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    one.live.set(instance(Backend.FRONTDOOR, 2, address=f"127.0.0.1:{port}"))
    peers = UsagePeers(one.page, one.live, OWN.id, lambda to, kind: StreamClient(to.address, kind=kind))
    running = asyncio.create_task(peers.run())
    try:
        found: list[float] = []

        def counted() -> bool:
            two.usage.counted(PRODUCER, ALICE, 5)
            found.extend(one.news)
            return bool(found)

        await until(counted)
        assert found[0] % 5 == 0
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)
