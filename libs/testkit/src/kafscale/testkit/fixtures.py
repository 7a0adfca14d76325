"""pytest fixtures for real stores and servers."""

from kafscale.testkit.etcd import etcd, etcd_server, keyspace
from kafscale.testkit.objects import (
    directory_attributes,
    directory_store,
    memory_store,
    namespace,
    object_store,
    object_store_kind,
    s3_store,
)
from kafscale.testkit.redis import redis_server
from kafscale.testkit.seaweed import seaweed

__all__ = [
    "directory_attributes",
    "directory_store",
    "etcd",
    "etcd_server",
    "keyspace",
    "memory_store",
    "namespace",
    "object_store",
    "object_store_kind",
    "redis_server",
    "s3_store",
    "seaweed",
]
