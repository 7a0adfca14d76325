"""What time does to committed offsets: those of deleted topics go, and those of groups long empty.

The laws (KIP-211). Offsets of a group with members stay; those of an empty one go `retention_ms` after the
later of their commit and the group's last member, or at the time their own commit asked for; a group with
neither members nor offsets goes as well. A topic counts as deleted only after a look at etcd that began
after its offset was read: a view may lag behind a topic just made. While any topic's record cannot be read, none
counts as deleted. Nothing is deleted that was committed again since it was read.
"""

from __future__ import annotations

import asyncio

import structlog
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.commits import Commits, Page, Stored, UnreadableOffset
from kafscale.coordinator.groups.registry import AnyActor, Groups
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.slots import ALL_SLOTS, Held, Slots
from kafscale.storage.etcd.client import EtcdError
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
NEVER_THERE_MS = 0
"""Of an offset without a group only its own age counts."""


class OffsetExpiration:
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
        """Every ten minutes, and soon after a topic went. What is not expected ends the process, as anywhere."""
        while True:
            if await self._topic_went():
                await asyncio.sleep(SETTLE_S)
            self._wanted.clear()
            for slot_id in ALL_SLOTS:
                held = self._slots.held(slot_id)
                if held is not None and held.loaded:
                    await self.slot(held)
                    await asyncio.sleep(SLOT_PAUSE_S)

    async def _topic_went(self) -> bool:
        """Whether one went before it is time anyway."""
        try:
            async with asyncio.timeout(self._every_s):
                return await self._wanted.wait()
        except TimeoutError:
            return False

    async def slot(self, held: Held) -> None:
        """Page by page: of a slot's offsets only a page is in memory, and the names of groups that keep some."""
        kept: set[str] = set()
        page = await self._commits.read_page(held)
        try:
            while not isinstance(page, ErrorCode):
                await self._page(held, page, kept)
                if page.rest is None:
                    await self._forget_empty(held, kept)
                    return
                page = await self._commits.read_page(held, page.rest)
        except (EtcdError, GroupFailed):
            return  # the slot has gone meanwhile, or will be looked at again

    async def _page(self, held: Held, page: Page, kept: set[str]) -> None:
        deleted = await self._deleted({where[0] for offsets in page.groups.values() for where in offsets})
        for name, offsets in page.groups.items():
            empty_since_ms = self._empty_since_ms(name)
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
            return set()  # the id of a topic whose record cannot be read may be any of them
        return {topic_id for topic_id in topic_ids if self._topics.by_id(topic_id) is None}

    def _empty_since_ms(self, name: str) -> int | None:
        """None: it has members, or may have. Raises `GroupFailed`."""
        if self._groups.is_unreadable(name):
            return None
        actor = self._groups.find(name)
        return NEVER_THERE_MS if actor is None else self._groups.empty_since_ms(actor)

    async def _forget_empty(self, held: Held, kept: set[str]) -> None:
        now_ms = self._clock.wall_ms()
        for actor in self._groups.in_slot(held.slot_id):
            empty_since_ms = self._groups.empty_since_ms(actor)
            if (
                actor.name not in kept
                and empty_since_ms is not None
                and empty_since_ms + self._retention_ms <= now_ms
            ):
                await self._forget(held, actor)

    async def _forget(self, held: Held, actor: AnyActor) -> None:
        """In the turn of commits, after a last look: one may have come since the group's offsets were read."""
        async with self._commits.order_lock(actor.name):
            if self._commits.is_writing(held, actor.name) or await self._commits.read(held, actor.name) != {}:
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
