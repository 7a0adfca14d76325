"""Makes the harness beside this file importable, and gives tests a cluster of produce instances."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.etcd import etcd, etcd_server, keyspace
from produce_harness import Cluster

__all__ = ["etcd", "etcd_server", "keyspace"]


@pytest_asyncio.fixture
async def cluster(etcd_server: EtcdProcess, keyspace: Keyspace) -> AsyncIterator[Cluster]:
    client = EtcdClient.connect([etcd_server.endpoint])
    found = Cluster(client, keyspace, MemoryStore())
    yield found
    await found.close()
