"""The cluster's id, as a process knows it that may not ask etcd each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.storage.cluster_record import ClusterIdView, encode_cluster
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace


@asynccontextmanager
async def running(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[ClusterIdView]:
    view = ClusterIdView(etcd, keyspace)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.run())
        await view.ready()
        yield view
        task.cancel()


async def known(view: ClusterIdView, cluster_id: str) -> None:
    async with asyncio.timeout(20):
        while view() != cluster_id:
            await asyncio.sleep(0.01)


async def test_the_id_is_known_from_the_first_admin_on_and_outlives_its_record(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    key = keyspace.cluster()
    async with running(etcd, keyspace) as view:
        assert view() == ""
        await etcd.put(key, encode_cluster("one", 1))
        await known(view, "one")
        await etcd.put(key, b"\xff")
        await etcd.delete(key)
        await etcd.put(
            key, encode_cluster("two", 1)
        )  # when it is known, the damage and the deletion were seen
        await known(view, "two")
        await etcd.put(key, b"\xff")
    assert view() == "two"
    async with running(etcd, keyspace) as view:
        assert view() == "", "damaged since before the start"


async def test_an_id_that_is_there_is_known_once_the_view_is_ready(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await etcd.put(keyspace.cluster(), encode_cluster("one", 1))
    await etcd.put(keyspace.cluster() + b"-of-another", encode_cluster("another", 1))
    async with running(etcd, keyspace) as view:
        assert view() == "one"
