"""Deletes topics. Every admin continues the deletions that other admins began.

The record stays DELETING until the last object is gone, so after a crash at any point the next admin finds the work.
Objects are deleted in pages: a page is listed, *then* the record is read again as DELETING, then the page is deleted.
The listed objects belong to the deleted topic. A delete names the etag, so it never removes an object of a new topic
with the same name, even if it arrives late. The listing is the only state: deleted objects are no longer in it. A
topic with very many objects pauses from time to time, so that other topics are deleted too.

A mark in the store comes first. If etcd is lost later, or restored from a snapshot in which the topic exists, the mark
keeps `kafscale fsck --roll-forward` from bringing the topic back. `kafscale backup` deletes old marks.

Nothing is deleted if etcd went back: the tree may have objects of a later topic of the name. So the history is verified
at the beginning and for each page, between the record's read and the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog
from kafscale.admin import plan
from kafscale.admin.topics import TopicStore
from kafscale.log.heads import decode_head
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.storage.coordination import decode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue, Txn, TxnResult
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import (
    DELETES_MAX,
    Doomed,
    ObjectInfo,
    ObjectStore,
    PreconditionFailed,
    StoreError,
)
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicState, TopicsView, decode_epoch_floor

log = structlog.get_logger(__name__)

PAGES_PER_TURN = 100
"""Of DELETES_MAX objects each. Then the next topic has its turn."""
RETRY_DELAY_S = 1.0
DOUBLINGS_MAX = 5
"""Of this delay, one after each round in which nothing could be deleted: what refuses gets fewer calls, not more."""
UNCONDITIONAL_WAIT_S = 120.0
"""Longer than any DELETE can be in flight, those of the upkeep service included."""


class Outcome(Enum):
    """Of one turn of a topic. PAUSED: other topics have their turn first. STALLED: it failed before it deleted
    anything.
    """

    DONE = auto()
    PAUSED = auto()
    FAILED = auto()
    STALLED = auto()


@dataclass(slots=True)
class Pages:
    """Of a turn so far. `freed`: deleted objects."""

    count: int = 0
    freed: int = 0


class Deletions:
    """Watches for topics that are DELETING and removes them."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        store: ObjectStore,
        topics: TopicStore,
        view: TopicsView,
        metrics: Metrics,
        clock: Clock,
        history: History,
    ) -> None:
        self._etcd = etcd
        self._history = history
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
        """Until cancelled. One topic after another: no request waits for a deletion."""
        unsubscribe = self._view.subscribe(lambda *_: self._changed.set())
        try:
            while True:
                self._changed.clear()
                pending = self._pending()
                outcomes = [await self._try(topic) for topic in pending]
                self._count_stalled(outcomes)
                if Outcome.PAUSED not in outcomes:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._delay_s if set(outcomes) - {Outcome.DONE} else None):
                            await self._changed.wait()
        finally:
            unsubscribe()

    @property
    def _delay_s(self) -> float:
        return RETRY_DELAY_S * 2.0 ** min(self._stalled_rounds, DOUBLINGS_MAX)

    def _count_stalled(self, outcomes: Sequence[Outcome]) -> None:
        stalled = bool(outcomes) and set(outcomes) == {Outcome.STALLED}
        self._stalled_rounds = self._stalled_rounds + 1 if stalled else 0
        self._stalled.set(self._stalled_rounds)

    def _pending(self) -> list[Topic]:
        return [topic for topic in self._view.all() if topic.state is TopicState.DELETING]

    async def _try(self, topic: Topic) -> Outcome:
        page = Pages()
        try:
            done = await self._finish(topic, page)
        except (EtcdError, StoreError, TimeoutError, UnreadableValue, WentBack) as trouble:
            log.warning("topic deletion delayed", topic=topic.name, reason=str(trouble))
            return Outcome.FAILED if page.freed else Outcome.STALLED
        finally:
            self._freed.inc(page.freed)
        return Outcome.DONE if done else Outcome.PAUSED

    async def _finish(self, topic: Topic, pages: Pages) -> bool:
        """False: the topic needs another turn."""
        await self._history.verify()
        mark = deletion_mark(self._keys, topic.topic_id, self._clock.wall_ms())
        await self._store.put(mark, [topic.name.encode()])
        if not await self._drop_heads(topic):
            return True  # another admin is further, or has finished
        found = True
        while found:  # an object that was replaced before its delete is listed again
            found = False
            async for page in self._pages(topic):
                found = True
                current = await self._topics.read(topic.name)
                if current is None or current.mod_revision != topic.mod_revision:
                    return True
                await self._history.verify()
                await self._delete(page, pages)
                if pages.count >= PAGES_PER_TURN:
                    return False
        if not self._store.conditional_delete:
            # A delete whose answer was lost may arrive late. Without an etag it would remove any object of that name.
            await asyncio.sleep(UNCONDITIONAL_WAIT_S)
        result = await self._fenced(plan.free_name(self._keys, topic))
        if result.succeeded:
            log.info("topic deleted", topic=topic.name, topic_id=topic.topic_id.hex(), objects=pages.freed)
        return True

    async def _drop_heads(self, topic: Topic) -> bool:
        """While the topic is DELETING no claim succeeds, so the epochs that are read here are final."""
        heads = await self._etcd.prefix(self._keys.heads_prefix(topic.topic_id))
        floor = await self._etcd.range(self._keys.epoch_floor(topic.name))
        epochs = [topic.epoch_floor]
        epochs += [await self._epoch(topic, kv) for kv in heads.kvs]
        epochs += [decode_epoch_floor(kv.value) for kv in floor.kvs]
        result = await self._fenced(plan.drop_heads(self._keys, topic, max(epochs)))
        return result.succeeded

    async def _fenced(self, txn: Txn) -> TxnResult:
        fence = await self._history.fenced()
        return await self._etcd.txn(replace(txn, compare=(*txn.compare, fence)))

    async def _epoch(self, topic: Topic, head: KeyValue) -> int:
        """The epoch of a head. If the head cannot be read, that of the owner record, which each claim writes with it.

        So a damaged topic can be deleted. Raises UnreadableValue if the owner record is damaged too.
        """
        try:
            return decode_head(head.value).epoch
        except UnreadableValue:
            _, partition = self._keys.parse_head(head.key)
            owner = await self._etcd.get(self._keys.owner(topic.topic_id, partition))
            if owner is None:
                raise
            return decode_owner(owner.value).epoch

    async def _pages(self, topic: Topic) -> AsyncIterator[list[ObjectInfo]]:
        """One page is in memory at a time."""
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
        """Tries every object of the page, then raises the first failure."""
        etags = self._store.conditional_delete
        found = await self._store.delete_many(
            [Doomed(info.key, info.etag if etags else None) for info in page]
        )
        pages.count += 1
        pages.freed += sum(outcome is True for outcome in found)
        for outcome in found:
            if isinstance(outcome, PreconditionFailed):
                log.info("object replaced before its delete", key=outcome.key)
            elif isinstance(outcome, StoreError):
                raise outcome
