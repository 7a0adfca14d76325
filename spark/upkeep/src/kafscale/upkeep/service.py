"""Composition: which instance works, one row per job, and the schedule that runs the jobs.

Arrow and NumPy are loaded when a job first reads records, and DuckDB at the first sample of a group: they are half of
the start time and 60 MB, and only one of several instances works.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from kafscale.lake.catalog import Lake
from kafscale.lake.retention.bundles import Sweep
from kafscale.lake.retention.orphans import Orphans
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.storage.membership.members import LiveView
from kafscale.upkeep.backup import BackupJob
from kafscale.upkeep.compaction import CompactionJob
from kafscale.upkeep.lag import LagJob
from kafscale.upkeep.retention import BundlesJob, OrphansJob, RetentionJob
from kafscale.upkeep.schedule import DEADLINE_MIN_MS, Job, LowestNode, Schedule
from kafscale.upkeep.settings import DAY_MS, UpkeepSettings

ROLE: Final = "upkeep"
BACKUP_LOOK_MS: Final = 300_000
"""Between two looks for the newest snapshot of etcd."""


@asynccontextmanager
async def build(runtime: Runtime[UpkeepSettings]) -> AsyncIterator[ServiceParts]:
    live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
    turn = LowestNode(live, runtime.registration)
    runtime.metrics.watch("working", lambda: turn.mine)
    watch_views(runtime.metrics, live_upkeep=live.view)
    schedule = Schedule(
        job_list(runtime),
        turn=turn,
        etcd=runtime.etcd,
        keys=runtime.keyspace,
        clock=runtime.clock,
        metrics=runtime.metrics,
    )
    tasks = [runtime.task_group.create_task(run) for run in (live.run(), schedule.run())]

    async def before_ready() -> None:
        await live.loaded()
        await runtime.history.judged()

    try:
        yield ServiceParts(before_ready=before_ready)
    finally:
        for task in tasks:
            task.cancel()


def job_list(runtime: Runtime[UpkeepSettings]) -> Sequence[Job]:
    settings = runtime.settings
    lake = Lake(runtime.etcd, runtime.keyspace, runtime.store, runtime.history)
    grace_s = settings.retention_grace_ms / 1000
    retention = RetentionJob(lake, runtime.metrics, runtime.clock, grace_s)
    compaction = CompactionJob(
        lake,
        runtime.metrics,
        runtime.clock,
        io_bytes_per_s=settings.compaction_io_bytes_per_s,
        within_ms=max(settings.compaction_every_ms, DEADLINE_MIN_MS) // 2,
        grace_s=settings.compaction_grace_ms / 1000,
    )
    collection = partial(
        Orphans, lake, grace_s=grace_s, objects_max=settings.orphans_objects_max, named_max=0, remembers=True
    )
    sweep = partial(
        Sweep,
        lake,
        min_age_ms=settings.bundles_min_age_ms,
        keep_ms=settings.bundles_uncommitted_keep_ms,
        grace_s=settings.bundle_grace_ms / 1000,
        now_ms=runtime.clock.wall_ms,
    )
    lag = LagJob(
        lake,
        runtime.metrics,
        runtime.clock,
        every_ms=settings.lag_every_ms,
        keep_ms=settings.lag_keep_ms,
        cache_bytes_max=settings.lag_manifest_cache_bytes,
    )
    return (
        *_backup_jobs(runtime),
        _job("retention", settings.retention_every_ms, retention),
        _job("compaction", settings.compaction_every_ms, compaction),
        _job("orphans", settings.orphans_every_ms, OrphansJob(runtime.metrics, collection)),
        _job("bundles", settings.bundles_every_ms, BundlesJob(runtime.metrics, runtime.clock, sweep)),
        Job(name="lag", every_ms=settings.lag_every_ms, run=lag.run),
        Job(name="lag-history", every_ms=DAY_MS, run=lag.expire),
    )


def _backup_jobs(runtime: Runtime[UpkeepSettings]) -> Sequence[Job]:
    keep, every_ms = runtime.settings.backup_keep, runtime.settings.backup_every_ms
    backup = BackupJob(runtime.etcd, runtime.keyspace, runtime.store, runtime.metrics, runtime.clock, keep)
    look = Job(name="backup-age", every_ms=BACKUP_LOOK_MS, run=backup.look)
    return (Job(name="backup", every_ms=every_ms, run=backup.run), look) if every_ms else (look,)


def _job(name: str, every_ms: int, job: RetentionJob | CompactionJob | OrphansJob | BundlesJob) -> Job:
    return Job(name=name, every_ms=every_ms, run=job.run, stands_still=lambda: job.stands_still)
