"""The cluster's id: 22 URL-safe characters, drawn once, the same for every service ever after."""

from __future__ import annotations

import base64
import uuid

import structlog
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Range, RangeResult, Txn
from kafscale.storage.heads import parse_value
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue
from kafscale.store.v1.store_pb2 import Cluster

log = structlog.get_logger(__name__)


def draw_cluster_id() -> str:
    """16 random bytes in base64, as Kafka's cluster ids are."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def cluster_id(etcd: EtcdClient, keys: Keyspace, now_ms: int) -> str | None:
    """The id that etcd holds; of several that try to write the first one, one wins. Raises EtcdError.

    None: its record cannot be read. Clients are told no id then; nothing else hangs on it.
    """
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
    record = Cluster()
    try:
        parse_value(record, held.kvs[0].value, "cluster record")
    except UnreadableValue as error:
        log.error("the cluster's id cannot be read", why=str(error))
        return None
    return record.cluster_id
