"""What the coordinator of transactional ids answers to other services: Join and Over."""

from __future__ import annotations

from kafscale.coordinator.transactions.closing import end_to_pb
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.registry import TransactionalIds
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest, OverReply, OverRequest
from kafscale.runtime.clock import Clock
from kafscale.runtime.transactions.participants import participants_from_pb


class Joins:
    """ServesJoins. The codes of its answers are those of the coordinator; the caller maps them to those of its API."""

    def __init__(self, ids: TransactionalIds, clock: Clock) -> None:
        self._ids = ids
        self._clock = clock

    async def join(self, request: JoinRequest) -> JoinReply:
        answer = await self._ids.join(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.epoch),
            participants_from_pb(request.participants),
            add=request.add,
        )
        reply = JoinReply(code=answer.error, number=answer.number)
        if answer.began_ms is not None:
            # As of now: a write or a proof came before the answer, and requests grow older meanwhile.
            reply.under_way_ms = self._clock.now_ms() - answer.began_ms
        if answer.ended is not None:
            reply.ended.CopyFrom(end_to_pb(answer.ended))
        return reply

    async def over(self, request: OverRequest) -> OverReply:
        is_over, slots = await self._ids.proven_over(request.producer_id, request.number)
        return OverReply(over=is_over, slots=slots)
