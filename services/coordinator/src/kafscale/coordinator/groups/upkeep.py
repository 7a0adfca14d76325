"""What time does to committed offsets: those of deleted topics go, and those of groups long empty.

The laws (KIP-211). Offsets of a group with members stay; those of an empty one go `retention_ms` after the
later of their commit and the group's last member, or at the time their own commit asked for; a group with
neither members nor offsets goes as well. A topic counts as deleted only after a look at etcd that began
after its offset was read: a view may lag behind a topic just made. Nothing is deleted that was committed
again since it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.commits import Commits, Stored, TopicPartition
from kafscale.coordinator.groups.host import AnyActor, Groups
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.slots import ALL_SLOTS, Held, Slots
from kafscale.storage.etcd import EtcdError
from kafscale.storage.groups import NO_EXPIRY, CommittedOffset
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import TopicsView
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

EVERY_S = 600.0
SETTLE_S = 1.0
"""After a topic went: tools delete many at once."""
SLOT_PAUSE_S = 0.05
"""Between slots, so that upkeep is a murmur beside the groups' own writes."""


class Upkeep:
    """See the module's law. `run` it while slots are held."""

    def __init__(
        self,
        *,
        slots: Slots,
        groups: Groups,
        commits: Commits,
        topics: TopicsView,
        clock: RunningClock,
        retention_ms: int,
        every_s: float = EVERY_S,
    ) -> None:
        self._slots = slots
        self._groups = groups
        self._commits = commits
        self._topics = topics
        self._clock = clock
        self._retention_ms = retention_ms
        self._every_s = every_s
        self._wanted = asyncio.Event()
        topics.subscribe(lambda _name, topic: self._wanted.set() if topic is None else None)

    async def run(self) -> None:
        """Every ten minutes, and soon after a topic went."""
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wanted.wait()
                await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                pass  # it is time anyway
            self._wanted.clear()
            for slot_id in ALL_SLOTS:
                held = self._slots.held(slot_id)
                if held is not None and held.loaded:
                    await self.slot(held)
                    await asyncio.sleep(SLOT_PAUSE_S)

    async def slot(self, held: Held) -> None:
        found = await self._commits.read_slot(held)
        if isinstance(found, ErrorCode):
            return
        try:
            deleted = await self._deleted({where[0] for offsets in found.values() for where in offsets})
        except EtcdError:
            return
        for name, offsets in found.items():
            gone = {where: stored for where, stored in offsets.items() if where[0] in deleted}
            await self._commits.expire(held, name, gone)
        for actor in self._groups.in_slot(held.slot_id):
            try:
                await self._expire(held, actor, found.get(actor.name, {}))
            except GroupFailed:
                return  # the slot has gone meanwhile, or will be looked at again
        known = {actor.name for actor in self._groups.in_slot(held.slot_id)}
        for name in found.keys() - known:
            if self._groups.is_unreadable(name):
                continue  # it may have members
            # A commit that crossed the deletion of its group.
            await self._drop_due(held, name, found[name], empty_since_ms=0)

    async def _deleted(self, topic_ids: set[TopicId]) -> set[TopicId]:
        if any(self._topics.by_id(topic_id) is None for topic_id in topic_ids):
            await self._topics.refresh()
        return {topic_id for topic_id in topic_ids if self._topics.by_id(topic_id) is None}

    async def _expire(self, held: Held, actor: AnyActor, offsets: Mapping[TopicPartition, Stored]) -> None:
        empty_since_ms = self._groups.empty_since_ms(actor)
        if empty_since_ms is None:
            return
        left = await self._drop_due(held, actor.name, offsets, empty_since_ms)
        if not left and empty_since_ms + self._retention_ms <= self._clock.wall_ms():
            log.info("an empty group without offsets is forgotten", group=actor.name)
            await self._groups.delete(actor)

    async def _drop_due(
        self, held: Held, name: str, offsets: Mapping[TopicPartition, Stored], empty_since_ms: int
    ) -> int:
        """How many offsets are left."""
        now_ms = self._clock.wall_ms()
        due = {
            where: stored
            for where, stored in offsets.items()
            if self._due_ms(stored.offset, empty_since_ms) <= now_ms
        }
        all_gone = await self._commits.expire(held, name, due)
        return len(offsets) - len(due) if all_gone else len(offsets)

    def _due_ms(self, offset: CommittedOffset, empty_since_ms: int) -> int:
        if offset.expire_ms != NO_EXPIRY:
            return offset.expire_ms
        return max(offset.commit_ms, empty_since_ms) + self._retention_ms
