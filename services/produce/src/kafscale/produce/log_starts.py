"""Where the logs of owned partitions start, as soon as somebody has moved a start.

A Produce answer says where its log starts. DeleteRecords and retention move starts in meta, and an owner reads meta
only for a claim and a checkpoint. So an instance watches the metas of the cluster, and passes each start of a partition
that it owns to the partition's writer, which keeps the highest. After a gap in the watch, it reads the metas of its
partitions. Nothing but the answer depends on these starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog
from kafscale.log.heads import decode_meta
from kafscale.produce.partition import Partition
from kafscale.storage.etcd.client import EtcdClient, EventKind, KeyValue, Range, WatchBatch
from kafscale.storage.keys import Keyspace, TopicId, UnknownKey, prefix_end
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.views import WatchedRange

KEYS_PER_READ: Final = 100
RECONCILE_S: Final = 3_600.0
"""A read of all metas of the instance is large. A start that the watch has missed is also in the next checkpoint."""

log = structlog.get_logger(__name__)

Owned = Mapping[tuple[TopicId, int], Partition]


class LogStarts(WatchedRange):
    """`run` it in a task. `owned`: the partitions of this instance now."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, owned: Callable[[], Owned]) -> None:
        self._prefix = keyspace.metas_prefix()
        super().__init__(etcd, self._prefix, prefix_end(self._prefix), reconcile_s=RECONCILE_S)
        self._keyspace = keyspace
        self._owned = owned

    async def _read_copy(self) -> int:
        """The revision first: what is claimed from then on has read its meta at this revision or a later one."""
        now = await self._etcd.range(self._prefix, range_end=self._range_end, limit=1, keys_only=True)
        keys = [self._keyspace.meta(*place) for place in self._owned()]
        for at in range(0, len(keys), KEYS_PER_READ):
            found = await self._etcd.ranges([Range(key) for key in keys[at : at + KEYS_PER_READ]])
            self._pass_on(kv for result in found for kv in result.kvs)
        return now.revision

    def _apply(self, batch: WatchBatch) -> None:
        self._pass_on(event.kv for event in batch.events if event.kind is EventKind.PUT)

    def _pass_on(self, metas: Iterable[KeyValue]) -> None:
        owned = self._owned()
        for kv in metas:
            try:
                partition = owned.get(self._keyspace.partition_of(kv.key, self._prefix))
                if partition is not None and partition.writer is not None:
                    partition.writer.moved_log_start(decode_meta(kv.value).log_start)
            except (UnknownKey, UnreadableValue) as error:
                log.warning("meta unreadable, so its log start is not known", why=str(error))
