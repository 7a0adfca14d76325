"""Offset expiration: removes offsets of deleted topics and expired offsets of empty groups.

The laws (KIP-211):

- Offsets of a group with members stay. An offset of an empty group expires `retention_ms` after its commit or after the
  group's last member, whichever is later, or at the time that its commit requested.
- A group without members and offsets is removed too.
- A topic counts as deleted only if etcd, read after the offset was read, does not have it: a view may lag behind a new
  topic. While any topic's record cannot be read, no topic counts as deleted.
- An offset that was committed again since it was read is not removed.
- A group with offsets that a transaction has pending stays, and so do its other offsets.
"""

from __future__ import annotations

import asyncio

import structlog
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.commits import Page, Stored, UnreadableOffset
from kafscale.coordinator.groups.registry import AnyActor
from kafscale.coordinator.slots import ALL_SLOTS, Held
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.groups import NO_EXPIRY, CommittedOffset
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

EVERY_S = 600.0
SETTLE_S = 1.0
"""After a topic was deleted: tools often delete many at once."""
SLOT_PAUSE_S = 0.05
"""Between slots, so that expiration adds little load to the groups' own writes."""
NO_GROUP_MS = 0
"""For an offset without a group: only its own age counts."""


class OffsetExpiration:
    """See the module's laws. `run` it while slots are held."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._slots = context.slots
        self._groups = context.groups
        self._commits = context.commits
        self._pending = context.transaction_offsets
        self._topics = context.topics
        self._clock = context.clock
        self._retention_ms = context.settings.offsets_retention_ms
        self._wanted = asyncio.Event()
        self._topics.subscribe(lambda _name, topic: self._wanted.set() if topic is None else None)

    async def run(self) -> None:
        """Every ten minutes, and soon after a topic is deleted. An unexpected exception ends the process, as
        everywhere.
        """
        while True:
            if await self._topic_deleted():
                await asyncio.sleep(SETTLE_S)
            self._wanted.clear()
            for slot_id in ALL_SLOTS:
                held = self._slots.held(slot_id)
                if held is not None and held.loaded:
                    await self.slot(held)
                    await asyncio.sleep(SLOT_PAUSE_S)

    async def _topic_deleted(self) -> bool:
        """Waits for the next pass. Returns whether a deleted topic was the reason."""
        try:
            async with asyncio.timeout(EVERY_S):
                return await self._wanted.wait()
        except TimeoutError:
            return False

    async def slot(self, held: Held) -> None:
        """One page of offsets is in memory at a time, and the names of the groups that keep offsets."""
        kept: set[str] = set()
        page = await self._commits.read_page(held)
        try:
            while not isinstance(page, ErrorCode):
                await self._page(held, page, kept)
                if page.rest is None:
                    await self._remove_empty(held, kept)
                    return
                page = await self._commits.read_page(held, page.rest)
        except (EtcdError, GroupFailed):
            return  # the slot was lost, or is checked again in the next pass

    async def _page(self, held: Held, page: Page, kept: set[str]) -> None:
        deleted = await self._deleted({where[0] for offsets in page.groups.values() for where in offsets})
        for name, offsets in page.groups.items():
            empty_since_ms = self._empty_since_ms(held, name)
            due = {
                where: stored
                for where, stored in offsets.items()
                if where[0] in deleted or self._is_due(stored, empty_since_ms)
            }
            if not await self._commits.expire(held, name, due) or len(due) < len(offsets):
                kept.add(name)

    async def _deleted(self, topic_ids: set[TopicId]) -> set[TopicId]:
        if any(self._topics.by_id(topic_id) is None for topic_id in topic_ids):
            await self._topics.refresh()
        if self._topics.damaged():
            return set()  # the unreadable record may belong to any of these ids
        return {topic_id for topic_id in topic_ids if self._topics.by_id(topic_id) is None}

    def _empty_since_ms(self, held: Held, name: str) -> int | None:
        """None: the group has members, or may have some, or a transaction. Raises `GroupFailed`."""
        if self._groups.is_unreadable(name) or self._pending.has_pending(held, name):
            return None
        actor = self._groups.find(name)
        return NO_GROUP_MS if actor is None else self._groups.empty_since_ms(actor)

    async def _remove_empty(self, held: Held, kept: set[str]) -> None:
        now_ms = self._clock.wall_ms()
        for actor in self._groups.in_slot(held.slot_id):
            empty_since_ms = self._groups.empty_since_ms(actor)
            if (
                actor.name not in kept
                and not self._pending.has_pending(held, actor.name)
                and empty_since_ms is not None
                and empty_since_ms + self._retention_ms <= now_ms
            ):
                await self._remove(held, actor)

    async def _remove(self, held: Held, actor: AnyActor) -> None:
        """Under the commits' lock and after another read: a commit may have arrived since the offsets were read."""
        async with self._commits.order_lock(actor.name):
            if self._commits.is_writing(held, actor.name) or await self._commits.read(held, actor.name) != {}:
                return
            if self._pending.has_pending(held, actor.name):
                return
            log.info("empty group removed", group=actor.name)
            await self._groups.delete(actor)

    def _is_due(self, stored: Stored, empty_since_ms: int | None) -> bool:
        offset = stored.offset
        if empty_since_ms is None or isinstance(offset, UnreadableOffset):
            return False
        return self._due_ms(offset, empty_since_ms) <= self._clock.wall_ms()

    def _due_ms(self, offset: CommittedOffset, empty_since_ms: int) -> int:
        if offset.expire_ms != NO_EXPIRY:
            return offset.expire_ms
        return max(offset.commit_ms, empty_since_ms) + self._retention_ms
