"""What a coordinator of groups answers to coordinators of transactional ids: End."""

from __future__ import annotations

import asyncio
from typing import Final

from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.registry import Groups
from kafscale.coordinator.groups.transaction_offsets import TransactionOffsets
from kafscale.rpc.v1.transactions_pb2 import EndReply, EndRequest, ParticipantSet, TransactionEnd

ANSWER_S: Final = 2.0


class GroupEnds:
    """ServesEnds. A group that is not named as done gets the end again: its slot may be elsewhere, or be loaded now."""

    def __init__(self, groups: Groups, offsets: TransactionOffsets) -> None:
        self._groups = groups
        self._offsets = offsets

    async def end(self, request: EndRequest) -> EndReply:
        """After ANSWER_S at the latest. What is in line then is given up, and what is being written goes on."""
        reply = EndReply()
        try:
            async with asyncio.timeout(ANSWER_S), asyncio.TaskGroup() as tasks:
                for ended in request.ends:
                    for group in ended.participants.groups:
                        tasks.create_task(self._end(ended, group, reply))
        except TimeoutError:
            pass
        return reply

    async def _end(self, ended: TransactionEnd, group: str, reply: EndReply) -> None:
        """The group itself need not exist."""
        try:
            held = self._groups.slot(group)
        except GroupFailed:
            return
        if await self._offsets.end(held, group, ended):
            reply.done.add(
                producer_id=ended.producer_id,
                number=ended.number,
                participants=ParticipantSet(groups=[group]),
            )
