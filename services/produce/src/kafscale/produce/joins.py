"""Questions to the coordinators of transactional ids: may batches of this producer be appended in these partitions?

One question for a producer and all partitions that ask in the same turn of the event loop, so one for a request. Each
partition holds its own batches back meanwhile (`Partition`), and judges the answer itself (`log/joins.py`). A question
that gets no answer in time is no refusal: the client sends its batches again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

import structlog
from kafscale.produce.log.model import TransactionEnd
from kafscale.produce.metrics import JOINED, UNANSWERED, ProduceMetrics
from kafscale.produce.transactions import Transaction, refusal
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest
from kafscale.rpc.v1.transactions_pb2 import TransactionEnd as EndMessage
from kafscale.runtime.tracing import CURRENT_SPAN, Span
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.storage.keys import PartitionKey
from kafscale.storage.system import monotonic_s
from kafscale.storage.transactions import Participants
from kafscale.wire.errors import ErrorCode, error_name

log = structlog.get_logger(__name__)

ANSWER_S: Final = 1.5
WAITING_MAX: Final = 10_000
"""Requests of an instance that wait for answers. Each is in the memory budget; this bounds their number."""


class Answer(NamedTuple):
    """To one partition. `ended`: the transaction before, which may be open here: carry its end out first."""

    error: ErrorCode
    number: int = 0
    ended: TransactionEnd | None = None


NO_ANSWER: Final = Answer(ErrorCode.NOT_ENOUGH_REPLICAS)


class Joining(Protocol):
    """A partition whose writer has asked."""

    key: PartitionKey

    def joined(self, asked: Transaction, answer: Answer) -> None: ...


class AsksCoordinators(Protocol):
    """`runtime.transactions.calling.CoordinatorCalls`."""

    async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply: ...


class Joins:
    """Shared by the partitions of an instance."""

    def __init__(
        self,
        calls: AsksCoordinators | None,
        *,
        metrics: ProduceMetrics,
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Without `calls` transactions are off, and nothing asks."""
        self._calls = calls
        self._metrics = metrics
        self._begin = begin
        self._gathered: dict[Transaction, list[Joining]] = {}
        self._spans: dict[Transaction, Span] = {}  # of the first traced request that asks
        self.waiting = 0

    def take_place(self) -> bool:
        """For one request that waits. False: as many wait as may."""
        if self.waiting >= WAITING_MAX:
            return False
        self.waiting += 1
        return True

    def leave(self, places: int) -> None:
        self.waiting -= places

    def ask(self, asked: Transaction, partition: Joining, span: Span | None = None) -> None:
        """`partition.joined` is called once, later, with the answer. `span`: of the request, if it is traced."""
        if span is not None:
            self._spans.setdefault(asked, span)
        partitions = self._gathered.get(asked)
        if partitions is not None:
            partitions.append(partition)
            return
        self._gathered[asked] = [partition]
        asyncio.get_running_loop().call_soon(self._send, asked)

    def _send(self, asked: Transaction) -> None:
        CURRENT_SPAN.set(
            self._spans.pop(asked, None)
        )  # in the context of this callback, which its task inherits
        work = self._answer(asked, self._gathered.pop(asked))
        try:
            self._begin(work)
        except RuntimeError:  # the process ends, and with it all that wait
            work.close()

    async def _answer(self, asked: Transaction, partitions: list[Joining]) -> None:
        reply = await self._reply(asked, partitions)
        ended: TransactionEnd | None = None
        if reply is not None and reply.HasField("ended"):
            ended = end_of(reply.ended)
        awaited = participants_from_pb(reply.ended.participants).partitions if reply else frozenset()
        for partition in partitions:
            if reply is None:
                partition.joined(asked, NO_ANSWER)
            elif reply.code:
                partition.joined(asked, Answer(refusal(reply.code)))
            else:
                there = ended if partition.key in awaited else None
                partition.joined(asked, Answer(ErrorCode.NONE, reply.number, there))

    async def _reply(self, asked: Transaction, partitions: list[Joining]) -> JoinReply | None:
        assert self._calls is not None, "transactions are on"
        request = JoinRequest(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            epoch=asked.epoch,
            add=asked.adds,
            participants=participants_to_pb(Participants(frozenset(each.key for each in partitions))),
        )
        began_s = monotonic_s()
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await self._calls.join(request, timeout_s=ANSWER_S)
        except (CallFailed, TimeoutError) as error:
            log.info("no answer to a join", transactional_id=asked.transactional_id, why=str(error))
            self._metrics.joins.labels(UNANSWERED).inc()
            return None
        answer = error_name(reply.code).lower() if reply.code else JOINED
        self._metrics.joins.labels(answer).inc()
        self._metrics.join_seconds.observe(monotonic_s() - began_s)
        return reply


def end_of(message: EndMessage) -> TransactionEnd:
    return TransactionEnd(
        producer_id=message.producer_id,
        number=message.number,
        commit=message.commit,
        marker_epoch=message.marker_epoch,
        coordinator_epoch=message.coordinator_epoch,
    )
