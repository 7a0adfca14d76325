"""Quotas of the whole cluster: a front door learns what clients of the others have used (KAFSCALE_QUOTA_SCOPE=cluster).

Laws: once a second a front door asks each other one that is ready for the totals of its meters, and adds what is new to
the part of its page for that front door. A total is the usage that was ever counted, so a lost answer costs only time.
The first answer of a front door counts nothing. One request to each is under way at a time, and beyond PEERS_MAX front
doors the others are left out. Meters have numbers, so no name of a user leaves the process. A front door that does not
answer uses nothing, as far as is known here.
"""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from struct import Struct
from typing import Any, Final

from kafscale.frontdoor.backends import Connect, Live, ServiceStream
from kafscale.frontdoor.quotas.usage_page import UsagePage, UsagePart, grown
from kafscale.runtime.stream.frame import Outcome, Reply, RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.options import Stream
from kafscale.storage.membership.members import Instance
from kafscale.wire.buffers import Buffer

USAGE: Final = 28_673
"""The number of the request, in place of an API key."""
ASK_EVERY_S: Final = 1.0
ANSWER_MS_MAX: Final = 2_000
META: Final = RequestMeta(connection_id=0, api_key=USAGE, api_version=0, age_budget_ms=ANSWER_MS_MAX)
_ENTRY: Final = Struct(">Qd")


def encode_totals(totals: Mapping[int, float]) -> bytes:
    return b"".join(_ENTRY.pack(number, total) for number, total in totals.items())


def decode_totals(body: Buffer) -> dict[int, float]:
    """Reads totals. Bytes that are left over at the end are ignored."""
    entries: Iterator[Any] = _ENTRY.iter_unpack(memoryview(body)[: len(body) // _ENTRY.size * _ENTRY.size])
    return dict(entries)


class _Peer:
    """Another front door, of one boot."""

    __slots__ = ("asked", "part", "stream", "totals")

    def __init__(self, stream: ServiceStream, part: UsagePart) -> None:
        self.stream = stream
        self.part = part
        self.asked = False
        self.totals: dict[int, float] | None = None

    def take(self, totals: dict[int, float]) -> None:
        before, self.totals = self.totals, totals
        for number, amount in grown(totals if before is None else before, totals).items():
            self.part.add(number, amount)


class UsagePeers:
    """The other front doors, as the registered process of this front door knows them."""

    def __init__(self, page: UsagePage, front_doors: Live, own_id: str, connect: Connect) -> None:
        """`own_id`: that of this front door's instance."""
        self._page = page
        self._free = list(page.peers)
        self._front_doors = front_doors
        self._own_id = own_id
        self._connect = connect
        self._peers: dict[str, _Peer] = {}

    def answer(self, request: InboundRequest) -> None:
        """The handler of USAGE."""
        totals: dict[int, float] = {}
        for part in self._page.workers:
            for number, total in part.totals().items():
                totals[number] = totals.get(number, 0.0) + total
        request.reply([encode_totals(totals)])

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await asyncio.sleep(ASK_EVERY_S)
                await self.ask()
        finally:
            for peer in self._peers.values():
                await peer.stream.close()

    async def ask(self) -> None:
        """Asks those that have answered the last time. Waits for no answer."""
        ready = [one for one in self._front_doors.instances() if one.is_ready and one.id != self._own_id]
        for gone in self._peers.keys() - {one.id for one in ready}:
            peer = self._peers.pop(gone)
            self._free.append(peer.part)
            await peer.stream.close()
        for one in ready:
            found = self._peers.get(one.id) or self._met(one)
            if found is not None and not found.asked:
                found.asked = True
                found.stream.send(META, []).future.add_done_callback(partial(self._take, found))

    def _met(self, one: Instance) -> _Peer | None:
        if not self._free:
            return None
        peer = self._peers[one.id] = _Peer(self._connect(one, Stream.CONTROL), self._free.pop())
        return peer

    @staticmethod
    def _take(peer: _Peer, future: "asyncio.Future[Reply]") -> None:
        peer.asked = False
        if not future.cancelled() and future.result().status.outcome is Outcome.ANSWERED:
            peer.take(decode_totals(future.result().body))
