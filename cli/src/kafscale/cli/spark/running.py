"""Runs a command's work on the cluster that its options name, and tells trouble in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafscale.cli.datadir import DataDirBusy
from kafscale.cli.options import StoreKind
from kafscale.cli.terminal import fail, notice
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdMissing

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster
    from kafscale.lake.catalog import Lake

T = TypeVar("T")


def on_lake(
    work: Callable[[Lake], Coroutine[Any, Any, T]], data_dir: Path | None, namespace: str, store: StoreKind
) -> T:
    """What `work` returns."""
    from kafscale.lake.catalog import Lake

    async def run(cluster: Cluster) -> T:
        return await work(Lake(cluster.etcd, cluster.keys, cluster.store))

    return on_cluster(run, data_dir, namespace, store)


def on_cluster(
    work: Callable[[Cluster], Coroutine[Any, Any, T]],
    data_dir: Path | None,
    namespace: str,
    store: StoreKind,
) -> T:
    """What `work` returns. Libraries of size are imported here, so that other commands do not wait for them."""
    from kafscale.cli.clusters import NoCluster, opened
    from kafscale.lake.heads import CorruptSegment
    from kafscale.lake.sql import QueryFailed
    from kafscale.storage.etcd import EtcdError
    from kafscale.storage.objects import StoreError

    async def run() -> T:
        async with opened(data_dir, namespace, store.value, notice) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(run())
    except (NoCluster, DataDirBusy, EtcdMissing, EtcdFailed, QueryFailed) as trouble:
        raise fail(str(trouble)) from trouble
    except (EtcdError, StoreError, CorruptSegment) as trouble:
        raise fail(str(trouble)) from trouble
