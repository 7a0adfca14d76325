"""What the coordinator of transactional ids answers to Join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from kafscale.coordinator.transactions.model import JoinAnswer, Token
from kafscale.coordinator.transactions.registry import TransactionalIds
from kafscale.coordinator.transactions.serving import Joins
from kafscale.rpc.v1.transactions_pb2 import JoinRequest
from kafscale.testkit.clock import ManualClock


@dataclass
class SlowIds:
    """The proof of the slot takes 200 ms."""

    clock: ManualClock

    async def join(self, *_: object, **__: object) -> JoinAnswer:
        began_ms = self.clock.now_ms()
        self.clock.advance(200)
        return JoinAnswer(token=Token(1), number=7, began_ms=began_ms)


async def test_the_time_of_the_proof_counts_as_time_under_way() -> None:
    """The request of a group's offsets grows older during the proof, and must not look older than its transaction."""
    clock = ManualClock()
    joins = Joins(cast(TransactionalIds, cast(Any, SlowIds(clock))), clock)
    reply = await joins.join(JoinRequest(transactional_id="id"))
    assert (reply.number, reply.under_way_ms) == (7, 200)
