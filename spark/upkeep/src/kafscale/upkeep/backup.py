"""Snapshots of etcd: a job of upkeep, and one run for a scheduler outside (`python -m kafscale.upkeep.backup`).

The job is for an etcd without users. Otherwise only root may read a snapshot, and no service should log in as root.
Whoever takes the snapshots, upkeep shows the time of the newest one.
"""

from __future__ import annotations

import asyncio
import sys

import structlog
from kafscale.runtime.clock import Clock
from kafscale.runtime.dependencies import connect_etcd, open_object_store
from kafscale.runtime.logs import configure_logs
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings_load import load_settings
from kafscale.storage.backups import Backup, Keep, take_and_tidy, taken_times
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore, StoreError
from kafscale.storage.system import wall_ms
from kafscale.upkeep.settings import UpkeepSettings

log = structlog.get_logger(__name__)


class BackupJob:
    def __init__(
        self, etcd: EtcdClient, keys: Keyspace, store: ObjectStore, metrics: Metrics, clock: Clock, keep: Keep
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._clock = clock
        self._keep = keep
        self._last = metrics.gauge("last_backup_timestamp_seconds")

    async def run(self) -> None:
        """Raises EtcdError and StoreError."""
        made = await back_up(self._etcd, self._keys, self._store, self._keep, self._clock.wall_ms())
        self._last.set(made.taken_ms / 1000)

    async def look(self) -> None:
        """Shows the newest snapshot, whoever took it. Before the first one, the time is 0."""
        times = await taken_times(self._store, self._keys)
        self._last.set(times[-1] / 1000 if times else 0)


async def back_up(etcd: EtcdClient, keys: Keyspace, store: ObjectStore, keep: Keep, now_ms: int) -> Backup:
    """Raises as `take_and_tidy`."""
    made, gone = await take_and_tidy(etcd, store, keys, keep, now_ms)
    log.info(
        "etcd backed up", folder=made.folder, bytes=made.bytes, parts=len(made.parts), deleted_snapshots=gone
    )
    return made


async def _once(settings: UpkeepSettings) -> int:
    etcd = connect_etcd(settings)
    store = open_object_store(settings)
    try:
        await back_up(etcd, Keyspace(settings.namespace), store, settings.backup_keep, wall_ms())
    except (EtcdError, StoreError, TimeoutError, WentBack) as failed:
        log.error("backup failed", why=str(failed))
        return 1
    finally:
        await store.close()
        await etcd.close()
    return 0


def main() -> int:
    settings = load_settings(UpkeepSettings)
    configure_logs(level=settings.log_level, form=settings.log_format, service="backup")
    return asyncio.run(_once(settings))


if __name__ == "__main__":
    sys.exit(main())
