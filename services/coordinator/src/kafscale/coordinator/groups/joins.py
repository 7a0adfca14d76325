"""The question whether a group belongs to a transaction, for the coordinator of the transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from kafscale.coordinator.slots import Held
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.serving import ServesJoins
from kafscale.storage.keys import SlotId
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

JOIN_TIMEOUT_S: Final = 1.5


class SendsJoins(Protocol):
    """The calls to other coordinators: CoordinatorCalls."""

    async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply: ...


class GroupJoins:
    """Asks this instance without the network if it has the slot of the id, else the instance that has it. Once: the
    client asks again."""

    def __init__(self, calls: SendsJoins, local: ServesJoins, held: Callable[[SlotId], Held | None]) -> None:
        self._calls = calls
        self._local = local
        self._held = held

    async def join(self, request: JoinRequest) -> JoinReply:
        """COORDINATOR_NOT_AVAILABLE if nobody answers within JOIN_TIMEOUT_S; the group may have joined then."""
        try:
            if self._held(slot_of(request.transactional_id)) is None:
                return await self._calls.join(request, timeout_s=JOIN_TIMEOUT_S)
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                return await self._local.join(request)
        except (CallFailed, TimeoutError) as failed:
            log.info("join not answered", why=str(failed))
            return JoinReply(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
