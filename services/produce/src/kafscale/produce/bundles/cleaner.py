"""Deletes the bundles of this instance that nobody needs any more; `deletion` decides which.

A DELETE that fails is sent again at the next look. Heads of partitions that have moved away are read now and then.

Nothing is dead in an etcd that went back. So heads are read with the proof that they are of the known history, and the
history is verified again before each request that deletes. A partition without a head is not proof of a deleted topic;
the mark that its deletion has left in the bucket is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
from kafscale.log.heads import decode_head
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import EtcdError, Range
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import BundleId, Keyspace, PartitionKey, TopicId
from kafscale.storage.objects import DELETES_MAX, Doomed, ObjectStore, StoreError
from kafscale.storage.recovery_keys import deletion_marks_prefix, parse_deletion_mark
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

LOOK_MIN_S: Final = 1.0
LOOK_MAX_S: Final = 60.0
LOOKS_PER_GRACE: Final = 15
HEADS_PER_READ: Final = 60
REQUEST_TIMEOUT_S: Final = 20.0

Trouble = (EtcdError, StoreError, TimeoutError, WentBack)


class Cleaner:
    """`run` it in a task."""

    def __init__(
        self,
        own: OwnBundles,
        *,
        history: History,
        store: ObjectStore,
        keyspace: Keyspace,
        clock: Clock,
        owned: Callable[[], Iterable[PartitionKey]],
        ask_every_s: float,
        grace_s: float,
    ) -> None:
        self._own = own
        self._history = history
        self._store = store
        self._keyspace = keyspace
        self._clock = clock
        self._owned = owned
        self._ask_every_ms = int(ask_every_s * 1000)
        self._look_every_ms = int(1000 * min(LOOK_MAX_S, max(LOOK_MIN_S, grace_s / LOOKS_PER_GRACE)))
        self.looks = 0

    async def run(self) -> None:
        asked_ms = self._clock.now_ms()
        while True:
            await asyncio.sleep(min(self._look_every_ms, self._ask_every_ms) / 1000)
            self.looks += 1
            if self._history.stopped is not None:
                continue
            if self._clock.now_ms() - asked_ms >= self._ask_every_ms:
                asked_ms = self._clock.now_ms()
                await self.ask()
            await self.delete()

    async def ask(self) -> None:
        """What became of slices in partitions that other instances own by now."""
        wanted = list(self._own.elsewhere(self._owned()).items())
        headless: list[PartitionKey] = []
        try:
            for at in range(0, len(wanted), HEADS_PER_READ):
                headless += await self._ask(wanted[at : at + HEADS_PER_READ])
            deleted = await self._deleted_topics() if headless else set()
        except Trouble as error:
            log.info("heads of bundles not read", error=str(error))
            return
        for where in headless:
            if where[0] in deleted:
                self._own.deleted_topic(where, self._clock.now_ms())

    async def _ask(self, some: Sequence[tuple[PartitionKey, frozenset[BundleId]]]) -> list[PartitionKey]:
        """Those that have no head."""
        found = await self._history.proven([Range(self._keyspace.head(*where)) for where, _ in some])
        headless = []
        for (where, asked), result in zip(some, found, strict=True):
            if result.kvs:
                self._note(where, asked, result.kvs[0].value)
            else:
                headless.append(where)
        return headless

    def _note(self, where: PartitionKey, asked: frozenset[BundleId], value: bytes) -> None:
        try:
            head = decode_head(value)
        except UnreadableValue:  # it keeps its bundles; the owner of the partition reports it
            return
        proof = self._own.changed(where, head, self._clock.now_ms(), asked)
        if proof is not None:
            self._history.suspect(proof)

    async def _deleted_topics(self) -> set[TopicId]:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            marks = [
                parse_deletion_mark(self._keyspace, info.key)
                async for info in self._store.list(deletion_marks_prefix(self._keyspace))
            ]
        return {mark[0] for mark in marks if mark is not None}

    async def delete(self) -> None:
        """What is due, until a deletion fails."""
        while due := self._own.dead.take(self._clock.now_ms(), DELETES_MAX):
            left = due
            try:
                await self._history.verify()
                left = await self._delete(due)
            except Trouble as error:
                log.info("bundles not deleted yet", count=len(due), error=repr(error))
            finally:
                self._own.dead.put_back(left, self._clock.now_ms())
            if left:
                return

    async def _delete(self, due: Sequence[BundleId]) -> list[BundleId]:
        """Those whose deletion failed."""
        doomed = [Doomed(self._keyspace.bundle_key(bundle_id)) for bundle_id in due]
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            outcomes = await self._store.delete_many(doomed)
        return [each for each, outcome in zip(due, outcomes, strict=True) if isinstance(outcome, StoreError)]
