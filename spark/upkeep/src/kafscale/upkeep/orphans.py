"""The collection of orphans as a job of upkeep."""

from __future__ import annotations

import structlog
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import Orphans
from kafscale.runtime.metrics import Metrics

log = structlog.get_logger(__name__)


class OrphansJob:
    def __init__(self, lake: Lake, metrics: Metrics, grace_s: float, objects_max: int) -> None:
        self._lake = lake
        self._grace_s = grace_s
        self._objects_max = objects_max
        self.stands_still = False
        self._deleted = metrics.counter("orphans_deleted_objects_total")
        self._strange = metrics.gauge("strange_objects")

    async def run(self) -> None:
        run = Orphans(
            self._lake, grace_s=self._grace_s, objects_max=self._objects_max, named_max=0, remembers=True
        )
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
