"""The ends of transactions in the partitions of this instance, as their coordinators decide them.

Law: a participant is named as done after its end is committed, or after it is proven that nothing of the transaction
is open (`PartitionWriter.end_transaction`). Everything else is *later*, and the coordinator sends the end again: the
partition is another instance's, or is claimed or handed over, or the store or etcd takes too long. A partition
without an owner that this instance should have is claimed for its end.

Ends are served whether or not `KAFSCALE_TRANSACTIONS` is on: what was open when it was turned off has to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafscale.produce.joins import end_of
from kafscale.produce.log.model import Reply, TransactionEnd
from kafscale.produce.metrics import DONE, LATER, ProduceMetrics
from kafscale.produce.ownership import Ownership
from kafscale.produce.partition import Partition
from kafscale.produce.transactions import Transaction
from kafscale.rpc.v1.transactions_pb2 import EndReply, EndRequest
from kafscale.runtime.clock import Clock
from kafscale.runtime.tracing import Span
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.storage.keys import PartitionKey
from kafscale.storage.transactions import Participants
from kafscale.wire.errors import ErrorCode

WAIT_MS: Final = 2_000
"""After it what is not done is *later*."""
AT_ONCE: Final = 100
"""Ends that are begun in one turn of the event loop."""


class Ending(NamedTuple):
    """One end in one partition."""

    end: TransactionEnd
    key: PartitionKey


class EndCall:
    """The ends of one request. Is the `Caller` of each; its slots are their numbers."""

    zstd_allowed = True
    abandoned = False
    transaction: Transaction | None = None
    span: Span | None = None

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.done: list[Ending] = []
        self._endings: list[Ending] = []
        self._open = 0
        self._settled = asyncio.Event()
        self._settled.set()

    def add(self, ending: Ending) -> int:
        self._endings.append(ending)
        self._open += 1
        self._settled.clear()
        return len(self._endings) - 1

    def settle(self, slot: int, reply: Reply) -> None:
        if reply.error is ErrorCode.NONE:
            self.done.append(self._endings[slot])
        self._open -= 1
        if not self._open:
            self._settled.set()

    async def settled(self, within_s: float) -> None:
        """All are done, or refused for now; or the time is over."""
        try:
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        except TimeoutError:
            return


class Ends:
    """What the coordinators call (`runtime.transactions.serving.ServesEnds`)."""

    def __init__(self, ownership: Ownership, *, clock: Clock, metrics: ProduceMetrics) -> None:
        self._ownership = ownership
        self._clock = clock
        self._metrics = metrics

    async def end(self, request: EndRequest) -> EndReply:
        """After at most WAIT_MS: what is done. What is not named is sent again."""
        began_ms = self._clock.now_ms()
        call = EndCall(began_ms + WAIT_MS)
        for number, ending in enumerate(_endings(request), start=1):
            partition = self._find(ending.key)
            if partition is not None:
                partition.end(call, call.add(ending), ending.end, self._ownership.tools.now())
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        await call.settled(max(0, call.deadline_ms - self._clock.now_ms()) / 1000)
        asked = sum(len(each.partitions) for end in request.ends for each in end.participants.partitions)
        self._metrics.ends.labels(DONE).inc(len(call.done))
        self._metrics.ends.labels(LATER).inc(asked - len(call.done))
        return _reply(call.done)

    def _find(self, key: PartitionKey) -> Partition | None:
        """None: it is not, and should not become, a partition of this instance."""
        topic_id, number = key
        found = self._ownership.partitions.get(key)
        if found is not None:
            return found
        world = self._ownership.world
        topic = world.topics.by_id(topic_id)
        if topic is None or not 0 <= number < topic.partitions or world.history.stopped is not None:
            return None
        claimed = self._ownership.find_or_claim(topic, number)
        return None if isinstance(claimed, ErrorCode) else claimed


def _endings(request: EndRequest) -> Iterable[Ending]:
    for message in request.ends:
        end = end_of(message)
        for key in sorted(participants_from_pb(message.participants).partitions):
            yield Ending(end, key)


def _reply(done: Iterable[Ending]) -> EndReply:
    by_end: dict[tuple[int, int], set[PartitionKey]] = {}
    for end, key in done:
        by_end.setdefault((end.producer_id, end.number), set()).add(key)
    reply = EndReply()
    for (producer_id, number), keys in by_end.items():
        participants = participants_to_pb(Participants(frozenset(keys)))
        reply.done.add(producer_id=producer_id, number=number, participants=participants)
    return reply
