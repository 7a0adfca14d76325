"""The calling end: to the coordinator of a transactional id, to all coordinators, and to participants.

A call is sent once. Callers decide about repeats: all three calls may be repeated, and a JoinReply with NOT_COORDINATOR
only says that the views were old. Nothing here waits for a view to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kafscale.rpc.v1.transactions_pb2 import (
    EndReply,
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
)
from kafscale.runtime.transactions.channels import CallFailed, Channels
from kafscale.runtime.transactions.methods import END, JOIN, OVER
from kafscale.storage.coordination import holder_of
from kafscale.storage.keys import SlotId
from kafscale.storage.slots import SLOTS, Slot, slot_of

__all__ = ["CallFailed", "CoordinatorCalls", "ParticipantCalls"]

ALL_SLOTS: Final = frozenset(range(SLOTS))


class CoordinatorCalls:
    """For owners of partitions and coordinators of groups."""

    def __init__(self, channels: Channels, claim_of: Callable[[SlotId], Slot | None]) -> None:
        """`channels`: to coordinators. `claim_of`: the record of a slot as the caller's view has it."""
        self._channels = channels
        self._claim_of = claim_of

    async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply:
        """Asks the coordinator of the id's slot, once. Raises CallFailed.

        The code NOT_COORDINATOR says that the slot has moved, and that nothing was changed.
        """
        slot_id = slot_of(request.transactional_id)
        instance_id = self._holder(slot_id)
        if instance_id is None:
            raise CallFailed(JOIN.name, f"the coordinator of slot {slot_id}", "none is registered")
        return await self._channels.call(instance_id, JOIN, request, timeout_s=timeout_s)

    async def over(self, request: OverRequest, *, timeout_s: float) -> bool:
        """Whether the transaction is neither under way nor closing, in any slot. Raises CallFailed if nobody has proven
        some slot, unless another coordinator has found the transaction.

        Once over it stays over, so a slot may move while it is asked about.
        """
        asked = [each.id for each in self._channels.live.instances()]
        answers = await asyncio.gather(*(self._over(each, request, timeout_s) for each in asked))
        replies = [each for each in answers if not isinstance(each, CallFailed) and not each.code]
        if not all(reply.over for reply in replies):
            return False
        missing = ALL_SLOTS.difference(*(reply.slots for reply in replies))
        if missing:
            why = (
                "; ".join(str(each) for each in answers if isinstance(each, CallFailed))
                or "no coordinator has them"
            )
            raise CallFailed(OVER.name, "all coordinators", f"{len(missing)} slots unproven ({why})")
        return True

    async def _over(self, instance_id: str, request: OverRequest, timeout_s: float) -> OverReply | CallFailed:
        try:
            return await self._channels.call(instance_id, OVER, request, timeout_s=timeout_s)
        except CallFailed as error:
            return error

    def _holder(self, slot_id: SlotId) -> str | None:
        claim = self._claim_of(slot_id)
        holder = None if claim is None else holder_of(claim, self._channels.live)
        return None if holder is None else holder.id


class ParticipantCalls:
    """For the coordinator that ends transactions."""

    def __init__(self, *channels: Channels) -> None:
        """`channels`: to produce, and to coordinators. Ids of instances are unique among all roles."""
        self._channels = channels

    async def end(self, instance: str, request: EndRequest, *, timeout_s: float) -> EndReply:
        """`instance`: the id of a registered process. Raises CallFailed."""
        for channels in self._channels:
            if channels.live.by_id(instance) is not None:
                return await channels.call(instance, END, request, timeout_s=timeout_s)
        raise CallFailed(END.name, instance, "it is not registered")
