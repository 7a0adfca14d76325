"""Runs a command's work on the lake of the cluster that its options name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafscale.cli.options import StoreKind
from kafscale.cli.running import Trouble, on_cluster

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster
    from kafscale.lake.catalog import Lake

T = TypeVar("T")


def on_lake(
    work: Callable[[Lake], Coroutine[Any, Any, T]],
    data_dir: Path | None,
    namespace: str | None,
    store: StoreKind,
) -> T:
    """What `work` returns."""
    from kafscale.lake.catalog import Lake
    from kafscale.lake.heads import CorruptSegment
    from kafscale.lake.sql import QueryFailed

    async def run(cluster: Cluster) -> T:
        try:
            return await work(Lake(cluster.etcd, cluster.keys, cluster.store))
        except (QueryFailed, CorruptSegment) as trouble:
            raise Trouble(str(trouble)) from trouble

    return on_cluster(run, data_dir, namespace, store)
