"""Lag as a job: a sample for the history, and the result as gauges on /metrics.

The gauges have kafka-lag-exporter's names, not ours, so that its dashboards fit. They are those of the last sample, and
removed once it is old: an instance that is no longer active must not show old values.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafscale.lake.catalog import Lake
from kafscale.runtime.clock import Clock
from kafscale.runtime.metric_table import LAG
from kafscale.runtime.metrics import Metrics, Row

if TYPE_CHECKING:
    from kafscale.lake.lag.prometheus import Gauge
    from kafscale.lake.lag.sampler import Sampler

SERIES_MAX: Final = 10_000
"""Per gauge. Series beyond this are left out and counted; the gauges per group still include them."""
MISSED_MAX: Final = 5
"""Missed samples in a row after which the last one is no longer shown."""


class LagJob:
    def __init__(
        self,
        lake: Lake,
        metrics: Metrics,
        clock: Clock,
        *,
        every_ms: int,
        keep_ms: int,
        cache_bytes_max: int = 0,
    ) -> None:
        self._lake = lake
        self._cache_bytes_max = cache_bytes_max
        self._clock = clock
        self._every_ms = every_ms
        self._sampler: Sampler | None = None
        self._keep_ms = keep_ms
        self._fresh_ms = MISSED_MAX * every_ms
        self._shown: dict[str, Gauge] = {}
        self._shown_ms = 0
        self._written = metrics.counter("lag_samples_total")
        self._left_out = metrics.gauge("lag_left_out_series")
        self._expired = metrics.counter("lag_files_expired_total")
        for row in LAG:
            metrics.watch_each(row.name, partial(self._rows, row.name))

    async def run(self) -> None:
        # Arrow and DuckDB: see `service`.
        from kafscale.lake.lag.prometheus import gauges
        from kafscale.lake.lag.sampler import Sampler
        from kafscale.lake.lag.status import Rules

        if self._sampler is None:
            self._sampler = Sampler(
                self._lake, Rules(interval_ms=self._every_ms), cache_bytes_max=self._cache_bytes_max
            )
        done = await self._sampler.step(self._clock.wall_ms())
        self._written.inc(done.written)
        self._shown = {gauge.name: gauge for gauge in gauges(done.report, done.logs)}
        self._shown_ms = self._clock.now_ms()
        self._left_out.set(sum(max(0, len(gauge.values) - SERIES_MAX) for gauge in self._shown.values()))

    async def expire(self) -> None:
        from kafscale.lake.lag.history import expire

        self._expired.inc(await expire(self._lake, self._clock.wall_ms(), self._keep_ms))

    def _rows(self, name: str) -> Iterable[Row]:
        gauge = self._shown.get(name)
        if gauge is None or self._clock.now_ms() - self._shown_ms > self._fresh_ms:
            return ()
        return gauge.values[:SERIES_MAX]
