"""How instances of one role share what can be owned: the partitions of produce, the group slots of the coordinator.

The laws: a live owner is never robbed; the node that rendezvous hashing over the ready instances prefers gets each
thing in the end; a view that is out of date costs a redirect, never a wrong write, for each claim is one
compare-and-swap (`claims`, `slots`). A hand-over is a record without owner that names the next one: all instances
watch these records, so no message is sent. `Fleet` is pure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kafscale.storage.claims import NO_NODE, Grounds, grounds, node_of, rendezvous
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.membership.members import LiveView

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The instances of a role as this one sees them. `place` and `number` name a thing: topic id and partition."""

    me: str
    leaving: bool  # this instance gives everything away
    ready: frozenset[int]  # node ids that claim
    live: frozenset[str]  # ids of the instances that hold a lease

    @classmethod
    def seen(cls, live: LiveView, me: str, *, claiming: bool, leaving: bool) -> Fleet:
        """The registered instances, with this one's own state instead of what it has registered."""
        mine = node_of(me)
        ready = {instance.node_id for instance in live.ready()} - {mine}
        if claiming and not leaving:
            ready.add(mine)
        return cls(
            me=me,
            leaving=leaving,
            ready=frozenset(ready),
            live=frozenset({instance.id for instance in live.instances()} | {me}),
        )

    def claimable(self, place: bytes, number: int, record: OwnerRecord | None) -> Grounds | None:
        """On what grounds this instance should claim it now, or None if it should not."""
        if self.leaving:
            return None
        if record is None:
            why: Grounds | None = Grounds.FIRST
        else:
            why = grounds(record.owner, record.handoff_to, me=self.me, live=self.live, ready=self.ready)
        if why in (None, Grounds.MINE, Grounds.HANDED_OVER):
            return why
        return why if rendezvous(place, number, self.ready) == node_of(self.me) else None

    def successor(self, place: bytes, number: int) -> int:
        """The node that should have it instead of this one; `NO_NODE` if this one should keep it, or none is ready."""
        mine = node_of(self.me)
        best = rendezvous(place, number, self.ready - {mine} if self.leaving else self.ready)
        return NO_NODE if best == mine else best


async def next_look(changed: asyncio.Event, *, every_s: float, settle_s: float) -> None:
    """Until something has changed, and `settle_s` longer, so that a burst of changes costs one look; or `every_s`,
    because a view may have missed a change."""
    try:
        async with asyncio.timeout(every_s):
            await changed.wait()
    except TimeoutError:
        return
    await asyncio.sleep(settle_s)
    changed.clear()


async def give_all_away(
    left: Callable[[], int], give: Callable[[], None], wait: Callable[[], Awaitable[object]], timeout_s: float
) -> None:
    """The drain: `give` as much as may go now, `wait` for a change, until nothing is `left` or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            while left():
                give()
                await wait()
    except TimeoutError:
        log.warning("hand-over incomplete: %d left", left())
