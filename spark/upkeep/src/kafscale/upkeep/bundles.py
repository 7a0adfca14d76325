"""The sweep of bundles as a job of upkeep."""

from __future__ import annotations

import structlog
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.bundles import Sweep
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics

log = structlog.get_logger(__name__)


class BundlesJob:
    def __init__(
        self, lake: Lake, metrics: Metrics, clock: Clock, *, min_age_ms: int, keep_ms: int, grace_s: float
    ) -> None:
        self._lake = lake
        self._clock = clock
        self._min_age_ms = min_age_ms
        self._keep_ms = keep_ms
        self._grace_s = grace_s
        self.stands_still = False
        self._deleted = metrics.counter("swept_bundles_total")
        self._bumped = metrics.counter("heads_bumped_total")
        self._live = metrics.gauge("bundles_live")
        self._pinned = metrics.gauge("bundles_pinned_seconds")

    async def run(self) -> None:
        run = Sweep(
            self._lake,
            min_age_ms=self._min_age_ms,
            keep_ms=self._keep_ms,
            grace_s=self._grace_s,
            now_ms=self._clock.wall_ms,
        )
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
