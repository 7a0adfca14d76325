"""The jobs that delete what nobody needs: retention, the collection of orphans, and the sweep of bundles.

Retention has a clock that does not jump. If the clock is set ahead, every record would look expired at once. So between
two runs the time advances by the monotonic clock and at most an hour more, and it never goes back. An operator has
hours to correct the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.apply import Retention
from kafscale.lake.retention.bundles import Sweep
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import Orphans
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics

log = structlog.get_logger(__name__)

LEAP_MAX_MS: Final = 3_600_000


class SteadyClock:
    """Wall time. Between two reads it advances by the monotonic clock and at most LEAP_MAX_MS more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms = clock.now_ms()
        self._wall_ms = clock.wall_ms()

    def look(self) -> int:
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        latest_ms = self._wall_ms + (now_ms - self._seen_ms) + LEAP_MAX_MS
        if wall_ms > latest_ms:
            log.warning("clock jump limited for retention", ahead_ms=wall_ms - latest_ms)
        self._seen_ms, self._wall_ms = now_ms, max(self._wall_ms, min(wall_ms, latest_ms))
        return self._wall_ms


class RetentionJob:
    def __init__(self, lake: Lake, metrics: Metrics, clock: Clock, grace_s: float) -> None:
        self._lake = lake
        self._clock = SteadyClock(clock)
        self._grace_s = grace_s
        self._moved = metrics.counter("log_starts_moved_total")
        self._segments = metrics.counter("retention_deleted_segments_total")
        self._bytes = metrics.counter("retention_deleted_bytes_total")
        self._missed = metrics.gauge("retention_missed_logs")
        self._failed = metrics.counter("retention_failed_deletes_total")
        self._manifests = ManifestBlocks(lake.store)
        self.stands_still = False

    async def run(self) -> None:
        now_ms = self._clock.look()
        run = Retention(
            self._lake,
            grace_s=self._grace_s,
            now_ms=lambda: now_ms,
            manifests=self._manifests,
            remembers=True,
        )
        try:
            await run.run()
        finally:
            done = run.report
            self.stands_still = done.stands_still
            self._moved.inc(done.moved)
            self._segments.inc(done.segments)
            self._bytes.inc(done.bytes)
            self._failed.inc(done.fates[Fate.FAILED])
            self._missed.set(len(done.missed))
            for place, why in done.missed.items():
                log.warning("log skipped by retention", log=place, why=why)
            log.info(
                "retention finished",
                logs=done.logs,
                moved=done.moved,
                segments=done.segments,
                bytes=done.bytes,
                objects={fate.value: count for fate, count in done.fates.items()},
            )


class OrphansJob:
    def __init__(self, metrics: Metrics, collection: Callable[[], Orphans]) -> None:
        self._collection = collection
        self.stands_still = False
        self._deleted = metrics.counter("orphans_deleted_objects_total")
        self._strange = metrics.gauge("strange_objects")

    async def run(self) -> None:
        run = self._collection()
        try:
            await run.collect()
        finally:
            found = run.found
            self.stands_still = found.stands_still
            self._deleted.inc(found.fates[Fate.DELETED])
            self._strange.set(found.strange)
            for place, why in found.missed.items():
                log.warning("log skipped by the collection of orphans", log=place, why=why)
            log.info(
                "collection of orphans finished",
                partitions=found.partitions,
                orphans=found.count,
                bytes=found.bytes,
                above_the_end=found.left,
                strange=found.strange_names,
                objects={fate.value: count for fate, count in found.fates.items()},
            )


class BundlesJob:
    def __init__(self, metrics: Metrics, clock: Clock, sweep: Callable[[], Sweep]) -> None:
        self._clock = clock
        self._sweep = sweep
        self.stands_still = False
        self._deleted = metrics.counter("swept_bundles_total")
        self._bumped = metrics.counter("heads_bumped_total")
        self._live = metrics.gauge("bundles_live")
        self._pinned = metrics.gauge("bundles_pinned_seconds")

    async def run(self) -> None:
        run = self._sweep()
        try:
            await run.run()
        finally:
            found = run.report
            self.stands_still = found.stands_still
            self._deleted.inc(found.deleted)
            self._bumped.inc(found.bumped)
            self._live.set(found.bundles - found.deleted)
            oldest_ms = found.oldest_pinned_ms
            self._pinned.set(0 if oldest_ms is None else (self._clock.wall_ms() - oldest_ms) / 1000)
            for place, why in found.unreadable.items():
                log.warning("bundle skipped by the sweep", place=place, why=why)
            log.info(
                "sweep of bundles finished",
                bundles=found.bundles,
                named=found.named,
                pinned=found.pinned,
                kept=found.kept,
                deleted=found.deleted,
                failed=found.failed,
                epochs_raised=found.bumped,
            )
