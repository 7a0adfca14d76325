"""The cluster's id: 22 URL-safe characters, drawn once, the same for every service ever after."""

from __future__ import annotations

import base64
import uuid

from kafscale.storage.etcd import Compare, EtcdClient, Put, Range, RangeResult, Txn
from kafscale.storage.keys import Keyspace
from kafscale.store.v1.store_pb2 import Cluster


def draw_cluster_id() -> str:
    """16 random bytes in base64, as Kafka's cluster ids are."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def cluster_id(etcd: EtcdClient, keys: Keyspace, now_ms: int) -> str:
    """The id that etcd holds; of several that try to write the first one, one wins. Raises EtcdError."""
    key = keys.cluster()
    ours = Cluster(schema=1, cluster_id=draw_cluster_id(), created_ms=now_ms)
    result = await etcd.txn(
        Txn(
            compare=(Compare(key, "version", "=", 0),),
            success=(Put(key, ours.SerializeToString()),),
            failure=(Range(key),),
        )
    )
    if result.succeeded:
        return ours.cluster_id
    held = result.responses[0]
    assert isinstance(held, RangeResult)
    return Cluster.FromString(held.kvs[0].value).cluster_id
