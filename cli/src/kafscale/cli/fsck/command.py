"""Checks the cluster that the command is pointed at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kafscale.cli.clusters import opened
from kafscale.cli.fsck.run import Fsck, Progress, Verdict


async def fsck(
    data_dir: Path | None,
    namespace: str,
    report: Callable[[str], None],
    progress: Progress,
    *,
    store: Literal["dir", "s3"] = "dir",
) -> Verdict:
    """Where the cluster is, `clusters.opened` says. Raises NoCluster, EtcdError, StoreError."""
    async with opened(data_dir, namespace, store, report) as cluster:
        return await Fsck(cluster.etcd, cluster.keys, cluster.store, progress).run()
