"""Compaction as a job: a round, and its report on the logs that it could not compact.

A round stops rewriting after half of its deadline, so that there is time for the grace and for the deletion of replaced
objects. Otherwise those would be left to the collection of orphans. The next round continues with the rest.

If the clock is set ahead, tombstones are dropped early, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog
from kafscale.lake.catalog import Lake
from kafscale.lake.compaction.plan import Candidate
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics

if TYPE_CHECKING:
    from kafscale.lake.compaction.report import Report, Tally

log = structlog.get_logger(__name__)


class CompactionJob:
    """`io_bytes_per_s`, `within_ms` and `grace_s` as in a round's Bounds."""

    def __init__(
        self,
        lake: Lake,
        metrics: Metrics,
        clock: Clock,
        *,
        io_bytes_per_s: int | None = None,
        within_ms: int | None = None,
        grace_s: float,
    ) -> None:
        self._lake = lake
        self._clock = clock
        self._io_bytes_per_s = io_bytes_per_s
        self._within_ms = within_ms
        self._grace_s = grace_s
        self._logs = metrics.counter("compacted_logs_total")
        self._before = metrics.counter("compaction_bytes_before_total")
        self._after = metrics.counter("compaction_bytes_after_total")
        self._uncleanable = metrics.gauges("uncleanable_partitions")
        self._longest = metrics.gauge("compaction_longest_seconds")
        self._delay = metrics.gauge("compaction_delay_seconds")
        self._left = metrics.counter("compaction_failed_deletes_total")
        self._unfinished = metrics.gauge("compaction_unfinished_logs")
        self.stands_still = False

    async def run(self) -> None:
        # Arrow and NumPy: see `service`.
        from kafscale.lake.compaction.run import Bounds, Round

        self.stands_still = False
        bounds = Bounds(io_bytes_per_s=self._io_bytes_per_s, within_ms=self._within_ms, grace_s=self._grace_s)
        done = await Round(self._lake, bounds, _compacted, self._clock.wall_ms).run()
        self.stands_still = done.stands_still
        self._count(done)
        for (topic, partition), trouble in done.missed.items():
            log.warning("log unreadable", topic=topic, partition=partition, why=repr(trouble))
        for outcome in done.uncleanable:
            place = outcome.candidate.log
            log.warning(
                "log uncleanable",
                topic=place.topic.name,
                partition=place.partition,
                why=repr(outcome.trouble),
            )
        log.info(
            "compaction finished",
            logs=len(done.outcomes),
            uncleanable=len(done.uncleanable) + len(done.missed),
            unfinished=done.unfinished,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
        )

    def _count(self, done: Report) -> None:
        self._logs.inc(sum(outcome.trouble is None for outcome in done.outcomes))
        self._before.inc(done.bytes_before)
        self._after.inc(done.bytes_after)
        self._left.inc(done.objects_left)
        self._longest.set(done.longest_ms / 1000)
        self._unfinished.set(done.unfinished)
        self._delay.set(done.delay_ms / 1000)
        troubles = [*(outcome.trouble for outcome in done.uncleanable), *done.missed.values()]
        reasons = Counter(type(trouble).__name__ for trouble in troubles)
        for (known,), _ in self._uncleanable.rows():
            reasons.setdefault(known, 0)
        for reason, count in reasons.items():
            self._uncleanable.labels(reason).set(count)


def _compacted(candidate: Candidate, tally: Tally) -> None:
    log.debug(
        "log compaction progress",
        topic=candidate.log.topic.name,
        partition=candidate.log.partition,
        segments=tally.before.segments,
    )
