"""Carries out topic deletions, whoever asked for them: any admin finishes what another began.

The record stays DELETING until the last object is gone, so a crash at any point leaves work that the next admin finds.
Objects go page by page: a page is listed, *then* the record is read once more as DELETING, then the page is deleted.
What was listed by then belongs to the dead topic, and a delete that names its etag can never hit a successor's object,
however late it lands. Nothing is remembered but by the listing itself: what is deleted is gone. A topic with very many
objects gives way to the others from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import structlog
from kafscale.admin import plan
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue
from kafscale.storage.heads import decode_epoch_floor, decode_head, decode_owner
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import (
    DELETES_MAX,
    Doomed,
    ObjectInfo,
    ObjectStore,
    PreconditionFailed,
    StoreError,
)
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicState, TopicsView

log = structlog.get_logger(__name__)

PAGES_PER_TURN = 100
"""Of DELETES_MAX objects each; then the next topic has its turn."""
RETRY_DELAY_S = 1.0
UNCONDITIONAL_WAIT_S = 120.0
"""Longer than a DELETE may be under way, upkeep's among them."""


class Turn(Enum):
    """What came of a topic's turn. STOOD_STILL: it failed before anything was deleted."""

    DONE = auto()
    CUT_SHORT = auto()
    FAILED = auto()
    STOOD_STILL = auto()


@dataclass(slots=True)
class Pages:
    """Of a turn so far. `freed`: objects that are gone."""

    count: int = 0
    freed: int = 0


class Deletions:
    """Watches for topics that are DELETING and removes them; `wait` tells when one is gone."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        store: ObjectStore,
        topics: TopicStore,
        view: TopicsView,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._topics = topics
        self._view = view
        self._clock = clock
        self._changed = asyncio.Event()
        self._freed = metrics.counter("deleted_objects_total")
        self._stalled = metrics.gauge("deletion_stalled_rounds")
        self._stalled_rounds = 0
        metrics.watch("deleting_topics", lambda: len(self._pending()))

    async def run(self) -> None:
        """Until cancelled. One topic after another: a deletion is no one's hot path."""
        unsubscribe = self._view.subscribe(lambda *_: self._changed.set())
        try:
            while True:
                self._changed.clear()
                pending = self._pending()
                turns = [await self._try(topic) for topic in pending]
                self._tell(turns)
                if Turn.CUT_SHORT not in turns:
                    await self._wait_for_change(RETRY_DELAY_S if set(turns) - {Turn.DONE} else None)
        finally:
            unsubscribe()

    def _tell(self, turns: Sequence[Turn]) -> None:
        still = bool(turns) and set(turns) == {Turn.STOOD_STILL}
        self._stalled_rounds = self._stalled_rounds + 1 if still else 0
        self._stalled.set(self._stalled_rounds)

    def _pending(self) -> list[Topic]:
        return [topic for topic in self._view.all() if topic.state is TopicState.DELETING]

    async def _wait_for_change(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _try(self, topic: Topic) -> Turn:
        page = Pages()
        try:
            done = await self._finish(topic, page)
        except (EtcdError, StoreError, UnreadableValue) as trouble:
            log.warning("topic deletion waits", topic=topic.name, reason=str(trouble), retry_s=RETRY_DELAY_S)
            return Turn.FAILED if page.freed else Turn.STOOD_STILL
        finally:
            self._freed.inc(page.freed)
        return Turn.DONE if done else Turn.CUT_SHORT

    async def _finish(self, topic: Topic, pages: Pages) -> bool:
        """False: there is more, for another turn."""
        if not await self._drop_heads(topic):
            return True  # another admin is past this, or through
        found = True
        while found:  # what was replaced while it was condemned is listed again
            found = False
            async for page in self._pages(topic):
                found = True
                current = await self._topics.read(topic.name)
                if current is None or current.mod_revision != topic.mod_revision:
                    return True
                await self._delete(page, pages)
                if pages.count >= PAGES_PER_TURN:
                    return False
        if not self._store.conditional_delete:
            # A delete whose answer was lost may land late, and here it would hit whatever has the name.
            await asyncio.sleep(UNCONDITIONAL_WAIT_S)
        result = await self._etcd.txn(plan.free_name(self._keys, topic))
        if result.succeeded:
            log.info("topic deleted", topic=topic.name, topic_id=topic.topic_id.hex(), objects=pages.freed)
        return True

    async def _drop_heads(self, topic: Topic) -> bool:
        """While the topic is DELETING no claim passes, so the epochs that are read here are final."""
        heads = await self._etcd.prefix(self._keys.heads_prefix(topic.topic_id))
        floor = await self._etcd.range(self._keys.epoch_floor(topic.name))
        epochs = [topic.epoch_floor]
        epochs += [await self._epoch(topic, kv) for kv in heads.kvs]
        epochs += [decode_epoch_floor(kv.value) for kv in floor.kvs]
        result = await self._etcd.txn(plan.drop_heads(self._keys, topic, max(epochs)))
        return result.succeeded

    async def _epoch(self, topic: Topic, head: KeyValue) -> int:
        """Of a head that cannot be read, what the owner record says that was written with each claim of it: to delete
        a topic is a way out of its damage. Raises UnreadableValue when that is damaged, too."""
        try:
            return decode_head(head.value).epoch
        except UnreadableValue:
            _, partition = self._keys.parse_head(head.key)
            owner = await self._etcd.get(self._keys.owner(topic.topic_id, partition))
            if owner is None:
                raise
            return decode_owner(owner.value).epoch

    async def _pages(self, topic: Topic) -> AsyncIterator[list[ObjectInfo]]:
        """No more than one of them is in memory."""
        prefixes = (
            self._keys.topic_prefix(topic.name),
            self._keys.manifests_prefix(topic.topic_id),
            self._keys.snapshots_prefix(topic.topic_id),
            self._keys.compacted_prefix(topic.topic_id),
        )
        page: list[ObjectInfo] = []
        for prefix in prefixes:
            async for info in self._store.list(prefix):
                page.append(info)
                if len(page) == DELETES_MAX:
                    yield page
                    page = []
        if page:
            yield page

    async def _delete(self, page: Sequence[ObjectInfo], pages: Pages) -> None:
        """Raises the first failure, after all of the page was tried."""
        etags = self._store.conditional_delete
        found = await self._store.delete_many(
            [Doomed(info.key, info.etag if etags else None) for info in page]
        )
        pages.count += 1
        pages.freed += sum(outcome is True for outcome in found)
        for outcome in found:
            if isinstance(outcome, PreconditionFailed):
                log.info("object was replaced while it was condemned; listed again", key=outcome.key)
            elif isinstance(outcome, StoreError):
                raise outcome
