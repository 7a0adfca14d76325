"""What upkeep counts of its jobs, and of what they do."""

from __future__ import annotations

from typing import Final

from kafscale.runtime.metrics import Metrics

RUN_SECONDS_BOUNDS: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0)


class ScheduleMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._runs = metrics.counters("runs", "Runs of a job that ended well", ("job",))
        self._failures = metrics.counters(
            "failures", "Runs of a job that failed or did not end in time", ("job",)
        )
        self._last = metrics.gauges(
            "last_run_timestamp_seconds", "When the job's last run here ended well", ("job",)
        )
        self._seconds = metrics.histograms(
            "run_seconds", "Duration of runs that ended well", ("job",), RUN_SECONDS_BOUNDS
        )

    def ended(self, job: str, took_ms: int, at_ms: int) -> None:
        self._runs.labels(job).inc()
        self._seconds.labels(job).observe(took_ms / 1000)
        self._last.labels(job).set(at_ms / 1000)

    def failed(self, job: str) -> None:
        self._failures.labels(job).inc()
