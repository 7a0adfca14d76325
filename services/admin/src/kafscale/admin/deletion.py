"""Carries out topic deletions, whoever asked for them: any admin finishes what another began.

The record stays DELETING until the last object is gone, so a crash at any point leaves work that the
next admin finds. Objects are listed to the end *before* the record is read once more as DELETING:
what was listed then belongs to the dead topic, and a delete that names its etag can never hit a
successor's object, however late it lands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog
from kafscale.admin import plan
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd import EtcdClient, EtcdError
from kafscale.storage.heads import decode_epoch_floor, decode_head
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectInfo, ObjectStore, PreconditionFailed, StoreError
from kafscale.storage.topics import Topic, TopicState, TopicsView

log = structlog.get_logger(__name__)

DELETES_AT_ONCE = 16
RETRY_DELAY_S = 1.0
UNCONDITIONAL_WAIT_S = 120.0


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
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._topics = topics
        self._view = view
        self._clock = clock
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. One topic after another: a deletion is no one's hot path."""
        unsubscribe = self._view.subscribe(lambda *_: self._changed.set())
        try:
            while True:
                self._changed.clear()
                failed = [topic for topic in self._pending() if not await self._try(topic)]
                await self._wait_for_change(RETRY_DELAY_S if failed else None)
        finally:
            unsubscribe()

    def _pending(self) -> list[Topic]:
        return [topic for topic in self._view.all() if topic.state is TopicState.DELETING]

    async def _wait_for_change(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _try(self, topic: Topic) -> bool:
        try:
            await self._finish(topic)
        except (EtcdError, StoreError) as trouble:
            log.warning("topic deletion waits", topic=topic.name, reason=str(trouble), retry_s=RETRY_DELAY_S)
            return False
        return True

    async def _finish(self, topic: Topic) -> None:
        if not await self._drop_heads(topic):
            return  # another admin is past this, or through
        freed = 0
        while condemned := [info async for info in self._objects(topic)]:
            current = await self._topics.read(topic.name)
            if current is None or current.mod_revision != topic.mod_revision:
                return
            await self._delete_all(condemned)
            freed += len(condemned)
        if not self._store.conditional_delete:
            # A delete whose answer was lost may land late, and here it would hit whatever has the name.
            await asyncio.sleep(UNCONDITIONAL_WAIT_S)
        result = await self._etcd.txn(plan.free_name(self._keys, topic))
        if result.succeeded:
            log.info("topic deleted", topic=topic.name, topic_id=topic.topic_id.hex(), objects=freed)

    async def _drop_heads(self, topic: Topic) -> bool:
        """While the topic is DELETING no claim passes, so the epochs that are read here are final."""
        heads = await self._etcd.prefix(self._keys.heads_prefix(topic.topic_id))
        floor = await self._etcd.range(self._keys.epoch_floor(topic.name))
        epochs = [topic.epoch_floor]
        epochs += [decode_head(kv.value).epoch for kv in heads.kvs]
        epochs += [decode_epoch_floor(kv.value) for kv in floor.kvs]
        result = await self._etcd.txn(plan.drop_heads(self._keys, topic, max(epochs)))
        return result.succeeded

    async def _objects(self, topic: Topic) -> AsyncIterator[ObjectInfo]:
        prefixes = (
            self._keys.topic_prefix(topic.name),
            self._keys.manifests_prefix(topic.topic_id),
            self._keys.snapshots_prefix(topic.topic_id),
            self._keys.compacted_prefix(topic.topic_id),
        )
        for prefix in prefixes:
            async for info in self._store.list(prefix):
                yield info

    async def _delete_all(self, condemned: list[ObjectInfo]) -> None:
        for start in range(0, len(condemned), DELETES_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for info in condemned[start : start + DELETES_AT_ONCE]:
                    group.create_task(self._delete(info))

    async def _delete(self, info: ObjectInfo) -> None:
        try:
            await self._store.delete(info.key, if_match=info.etag if self._store.conditional_delete else None)
        except PreconditionFailed:
            log.info("object was replaced while it was condemned; listed again", key=info.key)
