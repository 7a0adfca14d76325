"""The jobs, a row each: what it is called, how often it runs, what it does.

What reads records loads Arrow and NumPy when it first runs, and DuckDB by the first sample of a group: they are half of
a start and 60 MB, and of several instances one works.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.lake.catalog import Lake
from kafscale.runtime.process import Runtime
from kafscale.upkeep.compaction import CompactionJob
from kafscale.upkeep.lag import LagJob
from kafscale.upkeep.orphans import OrphansJob
from kafscale.upkeep.retention import RetentionJob
from kafscale.upkeep.schedule import DEADLINE_MIN_MS, Job
from kafscale.upkeep.settings import DAY_MS, UpkeepSettings


def job_list(runtime: Runtime[UpkeepSettings]) -> Sequence[Job]:
    settings = runtime.settings
    lake = Lake(runtime.etcd, runtime.keyspace, runtime.store)
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
    orphans = OrphansJob(lake, runtime.metrics, grace_s, settings.orphans_objects_max)
    lag = _lag_job(runtime, lake)
    return (
        Job(
            name="retention",
            every_ms=settings.retention_every_ms,
            run=retention.run,
            stands_still=lambda: retention.stands_still,
        ),
        Job(
            name="compaction",
            every_ms=settings.compaction_every_ms,
            run=compaction.run,
            stands_still=lambda: compaction.stands_still,
        ),
        Job(
            name="orphans",
            every_ms=settings.orphans_every_ms,
            run=orphans.run,
            stands_still=lambda: orphans.stands_still,
        ),
        Job(name="lag", every_ms=settings.lag_every_ms, run=lag.run),
        Job(name="lag-history", every_ms=DAY_MS, run=lag.expire),
    )


def _lag_job(runtime: Runtime[UpkeepSettings], lake: Lake) -> LagJob:
    settings = runtime.settings
    return LagJob(
        lake,
        runtime.metrics,
        runtime.clock,
        every_ms=settings.lag_every_ms,
        keep_ms=settings.lag_keep_ms,
        cache_bytes_max=settings.lag_manifest_cache_bytes,
    )
