"""What a bundle says about its writer: the instance, and the cluster.

The sweep of upkeep deletes bundles of deleted topics only if they have the id of etcd's cluster. An admin draws that id
when it first starts, and produce may start before it. So the id is read for the first bundle, and again for a later one
while there is none. A bundle without it is written all the same: the sweep keeps it if its topic is deleted.
"""

from __future__ import annotations

from typing import Final

import structlog
from kafscale.runtime.clock import Clock
from kafscale.storage.cluster_record import read_cluster_id
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import META_CLUSTER, META_OWNER, Keyspace
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

TIMEOUT_S: Final = 1.0
AGAIN_MS: Final = 10_000


class Origin:
    """Of one instance."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, clock: Clock, *, owner: str) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._clock = clock
        self._owner = owner
        self._cluster_id = ""
        self._ask_at_ms: int | None = None  # None: it was never asked for

    async def metadata(self) -> dict[str, str]:
        """Of a bundle that is about to be stored. Waits for etcd for TIMEOUT_S at most."""
        now_ms = self._clock.now_ms()
        if not self._cluster_id and (self._ask_at_ms is None or self._ask_at_ms <= now_ms):
            self._ask_at_ms = now_ms + AGAIN_MS
            self._cluster_id = await self._read()
        return {META_OWNER: self._owner, META_CLUSTER: self._cluster_id}

    async def _read(self) -> str:
        try:
            return await read_cluster_id(self._etcd, self._keyspace, timeout_s=TIMEOUT_S)
        except (EtcdError, UnreadableValue) as error:
            log.warning("cluster id not read", error=str(error))
            return ""
