"""A row of the table of metrics (metric_table.py), and the ways to write one. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

SECONDS_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CHOSEN_BY_OTHERS: Final = ("process_", "python_", "kafka_")

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """`name` is without the service's prefix; `bounds` are the upper bounds of a histogram's buckets."""

    kind: MetricKind
    name: str
    text: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def exposed(self, service: str) -> str:
        """The name on the service's /metrics."""
        return self.name if self.name.startswith(CHOSEN_BY_OTHERS) else f"kafscale_{service}_{self.name}"


def counter(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(kind="counter", name=name, text=text, labels=labels)


def gauge(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(kind="gauge", name=name, text=text, labels=labels)


def histogram(name: str, text: str, *labels: str, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> MetricRow:
    return MetricRow(kind="histogram", name=name, text=text, labels=labels, bounds=bounds)


HISTORY_STOPPED: Final = gauge(
    "history_stopped",
    "1 if etcd was lost, restored or replaced as far as this process knows: it claims and deletes nothing",
)
"""Of each service that claims partitions, creates topics or deletes objects."""
