"""The record of a cluster in etcd: its id, which the first admin draws."""

from __future__ import annotations

import asyncio
import logging

from kafscale.storage.etcd.client import TIMEOUT_S, EtcdClient, EventKind, WatchBatch
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue, parse_value
from kafscale.storage.views import RECONCILE_S, WatchedRange
from kafscale.store.v1.store_pb2 import Cluster

log = logging.getLogger(__name__)


def encode_cluster(cluster_id: str, created_ms: int) -> bytes:
    return Cluster(schema=1, cluster_id=cluster_id, created_ms=created_ms).SerializeToString()


def decode_cluster_id(value: bytes) -> str:
    """Raises UnreadableValue."""
    record = Cluster()
    parse_value(record, value, "cluster record")
    return record.cluster_id


async def read_cluster_id(etcd: EtcdClient, keys: Keyspace, *, timeout_s: float = TIMEOUT_S) -> str:
    """Empty before the first start of an admin. Raises EtcdError and UnreadableValue."""
    found = await etcd.get(keys.cluster(), timeout_s=timeout_s)
    return "" if found is None else decode_cluster_id(found.value)


class ClusterIdView(WatchedRange):
    """The last known id of the cluster, for a process that must name it without asking etcd. `run` it in a task.

    A record that is damaged or gone changes nothing: the cluster is still the same one to its clients.
    """

    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._key = keys.cluster()
        super().__init__(etcd, self._key, self._key + b"\0", reconcile_s=RECONCILE_S)
        self._id = ""
        self._read = asyncio.Event()

    def __call__(self) -> str:
        """Empty before the first start of an admin."""
        return self._id

    async def ready(self) -> None:
        """Returns when etcd has been read once."""
        await self._read.wait()

    async def _read_copy(self) -> int:
        found = await self._etcd.range(self._key)
        for kv in found.kvs:
            self._learn(kv.value)
        self._read.set()
        return found.revision

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.kind is EventKind.PUT:
                self._learn(event.kv.value)

    def _learn(self, value: bytes) -> None:
        try:
            self._id = decode_cluster_id(value)
        except UnreadableValue as error:
            log.error("cluster id unreadable: %s", error)
