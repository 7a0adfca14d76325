"""Fixtures of the runtime's tests: a real etcd."""

from kafscale.testkit.fixtures import etcd, etcd_server, keyspace

__all__ = ["etcd", "etcd_server", "keyspace"]
