"""The record of a cluster in etcd: its id, which the first admin draws."""

from __future__ import annotations

from kafscale.storage.etcd.client import TIMEOUT_S, EtcdClient
from kafscale.storage.heads import parse_value
from kafscale.storage.keys import Keyspace
from kafscale.store.v1.store_pb2 import Cluster


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
