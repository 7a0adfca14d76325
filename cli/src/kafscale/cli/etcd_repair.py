"""`kafscale etcd-repair`. The repair itself is `kafscale.runtime.etcd_repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafscale.cli.targets import DataDirOption, NamespaceOption, on_cluster
from kafscale.cli.terminal import report
from kafscale.operations.sentences import Trouble
from kafscale.operations.target import Target

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster


def etcd_repair(data_dir: DataDirOption = None, namespace: NamespaceOption = None) -> None:
    """Free space in a full etcd (NOSPACE) and clear its alarm. No key is removed.

    Example: kafscale etcd-repair --data-dir data. KAFSCALE_ETCD_ENDPOINTS should name every member:
    the command defragments one member after the other, and each is blocked meanwhile. If etcd has users, use root.
    """

    async def work(cluster: Cluster) -> None:
        from kafscale.runtime.etcd_repair import StillFull, repair

        try:
            await repair(cluster.etcd, cluster.keys, report)
        except StillFull as full:
            raise Trouble(str(full)) from full

    on_cluster(work, Target(data_dir, namespace))
