"""What upkeep counts of its jobs, and of what they do."""

from __future__ import annotations

from kafscale.runtime.metrics import Metrics


class ScheduleMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._runs = metrics.counters("runs_total")
        self._failures = metrics.counters("failures_total")
        self._last = metrics.gauges("last_run_timestamp_seconds")
        self._seconds = metrics.histograms("run_seconds")
        self._stalled = metrics.gauges("stalled_runs")
        self._in_a_row: dict[str, int] = {}

    def begin(self, *tasks: str) -> None:
        """They are counted from now on."""
        self._runs.begin(*tasks)
        self._failures.begin(*tasks)

    def ended(self, task: str, took_ms: int, at_ms: int) -> None:
        self._runs.labels(task).inc()
        self._seconds.labels(task).observe(took_ms / 1000)
        self._last.labels(task).set(at_ms / 1000)

    def failed(self, task: str) -> None:
        self._failures.labels(task).inc()

    def stands_still(self, task: str, does: bool) -> None:
        """Its last run found work and got nowhere, or did not."""
        self._in_a_row[task] = self._in_a_row.get(task, 0) + 1 if does else 0
        self._stalled.labels(task).set(self._in_a_row[task])
