"""A lag report as Prometheus reads it, by the names and labels of kafka-lag-exporter, so that its dashboards fit.

Added are `kafka_partition_last_stable_offset`, `_stable_lag`, `_eta_seconds`, `_expires_seconds`, `_lost`, `_ahead`,
`_uncommitted_lag` and `_status` (Burrow's numbers, and 7 to 9).
Unknown values are left out, because a placeholder would be taken for a value. So a partition without a committed offset
is only in `_uncommitted_lag`: a group that starts at the latest record has no lag there, and no alert may say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import Log
from kafscale.lake.lag.rates import soonest
from kafscale.lake.lag.report import PartitionRow, Report
from kafscale.lake.lag.status import NUMBERS
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PARTITION: Final = ("cluster_name", "topic", "partition")
_MEMBER: Final = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")
_GROUP: Final = ("cluster_name", "group")
_GROUP_TOPIC: Final = ("cluster_name", "group", "topic")
_MS: Final = 1_000
_PREFIX: Final = "kafka_consumergroup_group"

Values = list[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Gauge:
    """`values`: of the labels, in their order, and the number."""

    name: str
    text: str
    labels: Sequence[str]
    values: Values


def gauges(report: Report, logs: Iterable[Log]) -> list[Gauge]:
    """Always all of them, also those without a value."""
    return [*_of_logs(report.cluster, logs), *_of_members(report), *_of_groups(report)]


def exposition(found: Iterable[Gauge]) -> str:
    """Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed([family_of(gauge) for gauge in found]))
    return generate_latest(registry).decode()


def family_of(gauge: Gauge) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
    for labels, value in gauge.values:
        family.add_metric(labels, value)
    return family


class _Fixed(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


_OF_MEMBERS: Final[Sequence[tuple[str, str, Callable[[PartitionRow], float | None]]]] = (
    ("offset", "Last group consumed offset of a partition", lambda row: row.committed),
    ("lag", "Group offset lag of a partition", lambda row: row.records),
    (
        "stable_lag",
        "Group offset lag of a partition, to the last stable offset",
        lambda row: row.stable_records,
    ),
    ("lag_seconds", "Group time lag of a partition", lambda row: _seconds(row.time_ms if row.records else 0)),
    (
        "eta_seconds",
        "Time until a partition is read to its end, at the present rates",
        lambda row: _seconds(row.eta_ms),
    ),
    (
        "expires_seconds",
        "Time until retention deletes the group's next record of a partition",
        lambda row: _seconds(soonest(row.expires_in_ms, row.expires_by_size_ms)),
    ),
    (
        "status",
        "Status (Burrow's): 0 unknown, 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND; 7 LOST, 8 AHEAD, 9 REPLACED",
        lambda row: NUMBERS[row.status],
    ),
    (
        "lost",
        "Records deleted before the group read them, until it commits again",
        lambda row: row.lost,
    ),
    ("ahead", "Offsets by which the committed offset is beyond the end of the log", lambda row: row.ahead),
)


def _of_logs(cluster: str, logs: Iterable[Log]) -> Iterable[Gauge]:
    latest: Values = []
    earliest: Values = []
    stable: Values = []
    for log in logs:
        labels = (cluster, log.topic.name, str(log.partition))
        latest.append((labels, log.end))
        earliest.append((labels, log.start))
        stable.append((labels, log.last_stable_offset))
    yield Gauge("kafka_partition_latest_offset", "Latest offset of a partition", _PARTITION, latest)
    yield Gauge("kafka_partition_earliest_offset", "Earliest offset of a partition", _PARTITION, earliest)
    text = "Last stable offset of a partition: read_committed consumers read below it"
    yield Gauge("kafka_partition_last_stable_offset", text, _PARTITION, stable)


def _of_members(report: Report) -> Iterable[Gauge]:
    placed = [row for row in report.partitions if row.committed is not None]
    for name, text, value_of in _OF_MEMBERS:
        found = (((report.cluster, *_labels(row)), value_of(row)) for row in placed)
        values = [(labels, value) for labels, value in found if value is not None]
        yield Gauge(f"{_PREFIX}_{name}", text, _MEMBER, values)


def _of_groups(report: Report) -> Iterable[Gauge]:
    largest: Values = []
    slowest: Values = []
    total: Values = []
    for group in report.groups:
        labels = (report.cluster, group.group)
        largest.append((labels, group.records_max))
        total.append((labels, group.records - group.uncommitted_records))
        seconds = _seconds(group.time_ms if group.records_max else 0)
        if seconds is not None:
            slowest.append((labels, seconds))
    by_topic: dict[tuple[str, ...], int] = defaultdict(int)
    unplaced: dict[tuple[str, ...], int] = defaultdict(int)
    for row in report.partitions:
        sums = by_topic if row.committed is not None else unplaced
        sums[report.cluster, row.group, row.topic] += row.records
    yield Gauge(f"{_PREFIX}_max_lag", "Max group offset lag", _GROUP, largest)
    yield Gauge(f"{_PREFIX}_max_lag_seconds", "Max group time lag", _GROUP, slowest)
    yield Gauge(f"{_PREFIX}_sum_lag", "Sum of group offset lag", _GROUP, total)
    text = "Sum of group offset lag across topic partitions"
    yield Gauge(f"{_PREFIX}_topic_sum_lag", text, _GROUP_TOPIC, list(by_topic.items()))
    text = "Records in partitions without a committed offset"
    yield Gauge(f"{_PREFIX}_uncommitted_lag", text, _GROUP_TOPIC, list(unplaced.items()))


def _labels(row: PartitionRow) -> tuple[str, ...]:
    return row.group, row.topic, str(row.partition), row.host or "", row.member or "", row.client or ""


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / _MS
