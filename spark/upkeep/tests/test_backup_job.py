"""Upkeep takes snapshots of etcd if it is told to, and shows the age of the newest one, whoever took it."""

from __future__ import annotations

from kafscale.runtime.exposition import expose
from kafscale.runtime.metrics import Metrics
from kafscale.storage.backups import DAY_MS, Keep, take, taken_times
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.clock import ManualClock
from kafscale.upkeep.backup import BackupJob

START_MS = 1_700_000_000_000
NAME = "kafscale_upkeep_last_backup_timestamp_seconds "


def shown_s(metrics: Metrics) -> float:
    lines = expose(metrics.read()).decode().splitlines()
    (value,) = (line.removeprefix(NAME) for line in lines if line.startswith(NAME))
    return float(value)


async def test_a_run_stores_a_snapshot_and_keeps_what_the_settings_say(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store, metrics, clock = MemoryStore(), Metrics("upkeep"), ManualClock(wall_ms=START_MS)
    job = BackupJob(etcd, keyspace, store, metrics, clock, Keep(count=2, age_ms=0))
    await job.look()
    assert shown_s(metrics) == 0
    for _ in range(3):
        await job.run()
        clock.advance(DAY_MS)
    assert await taken_times(store, keyspace) == [START_MS + DAY_MS, START_MS + 2 * DAY_MS]
    assert shown_s(metrics) == (START_MS + 2 * DAY_MS) / 1000


async def test_the_age_of_a_snapshot_that_another_process_took_is_shown(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store, metrics, clock = MemoryStore(), Metrics("upkeep"), ManualClock(wall_ms=START_MS)
    job = BackupJob(etcd, keyspace, store, metrics, clock, Keep(count=2, age_ms=0))
    await take(etcd, store, keyspace, START_MS + 5_000)
    await job.look()
    assert shown_s(metrics) == START_MS / 1000 + 5
