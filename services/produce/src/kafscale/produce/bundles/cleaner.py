"""Deletes the bundles of this instance that nobody needs any more; `deletion` decides which.

A DELETE that fails is sent again at the next look. Heads of partitions that have moved away are read now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from kafscale.produce.bundles.deletion import OwnBundles, PartitionKey
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range
from kafscale.storage.heads import decode_head
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import DELETES_MAX, Doomed, ObjectStore, StoreError
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
HEADS_PER_READ: Final = 60
DELETE_TIMEOUT_S: Final = 20.0


class Cleaner:
    """`run` it in a task."""

    def __init__(
        self,
        own: OwnBundles,
        *,
        etcd: EtcdClient,
        store: ObjectStore,
        keyspace: Keyspace,
        clock: Clock,
        owned: Callable[[], Iterable[PartitionKey]],
        ask_every_s: float,
    ) -> None:
        self._own = own
        self._etcd = etcd
        self._store = store
        self._keyspace = keyspace
        self._clock = clock
        self._owned = owned
        self._ask_every_ms = int(ask_every_s * 1000)

    async def run(self) -> None:
        asked_ms = self._clock.now_ms()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._clock.now_ms() - asked_ms >= self._ask_every_ms:
                asked_ms = self._clock.now_ms()
                await self._ask()
            await self._delete()

    async def _ask(self) -> None:
        """What became of slices in partitions that other instances own by now."""
        wanted = list(self._own.elsewhere(self._owned()))
        for at in range(0, len(wanted), HEADS_PER_READ):
            some = wanted[at : at + HEADS_PER_READ]
            try:
                found = await self._etcd.ranges([Range(self._keyspace.head(*where)) for where in some])
            except EtcdError as error:
                log.info("heads of bundles not read", error=str(error))
                return
            for where, result in zip(some, found, strict=True):
                self._note(where, result.kvs[0].value if result.kvs else None)

    def _note(self, where: PartitionKey, value: bytes | None) -> None:
        try:
            head = None if value is None else decode_head(value)
        except UnreadableValue:  # it keeps its bundles; the owner of the partition reports it
            return
        self._own.changed(where, head, self._clock.now_ms())

    async def _delete(self) -> None:
        due = self._own.due(self._clock.now_ms())[:DELETES_MAX]
        if not due:
            return
        doomed = [Doomed(self._keyspace.bundle_key(bundle_id)) for bundle_id in due]
        try:
            async with asyncio.timeout(DELETE_TIMEOUT_S):
                outcomes = await self._store.delete_many(doomed)
        except (StoreError, TimeoutError) as error:
            log.info("bundles not deleted yet", count=len(due), error=repr(error))
            return
        for bundle_id, outcome in zip(due, outcomes, strict=True):
            if not isinstance(outcome, StoreError):
                self._own.deleted(bundle_id)
