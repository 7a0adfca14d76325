"""Metrics that are cheap to count: plain integers on the hot path, Prometheus only for a scrape.

Each metric is a row of `metric_table`; a metric without a row cannot be created. The loop reads all values at once,
and a thread turns them into text.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kafscale.runtime.metric_table import MetricKind, MetricRow, rows_of

CHILDREN_MAX: Final = 1_000
OVERFLOW: Final = "other"


class Tally:
    """A counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class Level:
    """A gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class Distribution:
    """A histogram."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> "Distribution":
        copied = Distribution(self.bounds)
        copied.counts[:] = self.counts
        copied.total = self.total
        return copied

    def buckets(self) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound if bound == "+Inf" else str(float(bound)), running))
        return rows


Child = TypeVar("Child", Tally, Level, Distribution)


class Family(Generic[Child]):
    """One name with a child per combination of label values. Look a child up once and keep it."""

    __slots__ = ("_children", "_labels", "_make")

    def __init__(self, labels: Sequence[str], make: Callable[[], Child]) -> None:
        self._labels = tuple(labels)
        self._make: Callable[[], Child] = make
        self._children: dict[tuple[str, ...], Child] = {}

    def labels(self, *values: object) -> Child:
        """The child of these label values. Beyond CHILDREN_MAX combinations all others share one child, so that clients
        cannot fill memory.
        """
        key = tuple(map(str, values))
        child = self._children.get(key)
        if child is None:
            assert len(key) == len(self._labels), f"labels are {self._labels}"
            if len(self._children) >= CHILDREN_MAX:
                key = (OVERFLOW,) * len(key)
            child = self._children.setdefault(key, self._make())
        return child

    def begin(self, *values: object) -> None:
        """Creates children of a family with one label, at 0: PromQL's `increase` ignores the first sample of a
        series."""
        for value in values:
            self.labels(value)

    def forget(self, label: str, value: str) -> None:
        """Removes the children with this value of the label. Counts on such a child are lost."""
        at = self._labels.index(label)
        for key in [key for key in self._children if key[at] == value]:
            del self._children[key]

    def rows(self) -> list[tuple[tuple[str, ...], Child]]:
        return list(self._children.items())


Value = float | Distribution
Row = tuple[Sequence[str], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One metric: its row, and a function that reads its values by label values."""

    row: MetricRow
    rows: Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values of one metric at the time of a scrape."""

    row: MetricRow
    name: str
    values: Sequence[Row]


class Metrics:
    """All metrics of a process. Each scrape reads the sources; Prometheus is not imported before the first.

    `table`: the service's rows, or those of a test.
    """

    def __init__(self, service: str, table: Iterable[MetricRow] | None = None) -> None:
        self.service = service
        self._table: Mapping[str, MetricRow] = {
            row.name: row for row in (rows_of(service) if table is None else table)
        }
        self.sources: dict[str, Source] = {}  # by their names on /metrics

    def counter(self, name: str) -> Tally:
        return self.counters(name).labels()

    def counters(self, name: str) -> Family[Tally]:
        """A family with the row's labels."""
        row = self._row(name, "counter")
        return self._family(row, Tally, lambda tally: tally.value)

    def gauge(self, name: str) -> Level:
        return self.gauges(name).labels()

    def gauges(self, name: str) -> Family[Level]:
        row = self._row(name, "gauge")
        return self._family(row, Level, lambda level: level.value)

    def histogram(self, name: str) -> Distribution:
        return self.histograms(name).labels()

    def histograms(self, name: str) -> Family[Distribution]:
        row = self._row(name, "histogram")
        return self._family(row, lambda: Distribution(row.bounds), Distribution.copy)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """A counter or gauge without labels. Each scrape calls `read`."""
        row = self._row(name, "counter", "gauge")
        assert not row.labels, f"{name} has labels"
        self._add(row, lambda: [((), read())])

    def watch_each(self, name: str, read: Callable[[], Iterable[Row]]) -> None:
        """A counter or gauge with labels. Each scrape calls `read`: label values in the row's order, and the number."""
        row = self._row(name, "counter", "gauge")
        self._add(row, read)

    def read(self) -> list[Reading]:
        """All current values. Call it on the loop, so that no value changes meanwhile."""
        return [
            Reading(row=source.row, name=name, values=list(source.rows()))
            for name, source in self.sources.items()
        ]

    def _row(self, name: str, *kinds: MetricKind) -> MetricRow:
        row = self._table.get(name)
        assert row is not None, f"{name!r} is not in the table of metrics"
        assert row.kind in kinds, f"{name} is a {row.kind}"
        return row

    def _family(
        self, row: MetricRow, make: Callable[[], Child], value: Callable[[Child], Value]
    ) -> Family[Child]:
        family: Family[Child] = Family(row.labels, make)
        self._add(row, lambda: ((labels, value(child)) for labels, child in family.rows()))
        return family

    def _add(self, row: MetricRow, rows: Callable[[], Iterable[Row]]) -> None:
        name = row.exposed(self.service)
        assert name not in self.sources, f"{name} exists already"
        self.sources[name] = Source(row=row, rows=rows)


@dataclass(frozen=True, slots=True)
class TopicTallies:
    bytes: Tally
    records: Tally


class TopicTraffic:
    """`bytes_total` and `records_total` of each topic. A topic's counters are kept until the topic is gone."""

    def __init__(self, metrics: Metrics) -> None:
        self._bytes = metrics.counters("bytes_total")
        self._records = metrics.counters("records_total")
        self._topics: dict[str, TopicTallies] = {}

    def of(self, topic: str) -> TopicTallies:
        found = self._topics.get(topic)
        if found is None:
            found = TopicTallies(self._bytes.labels(topic), self._records.labels(topic))
            self._topics[topic] = found
        return found

    def changed(self, name: str, topic: object | None) -> None:
        """A listener of the view of topics: the series of a topic end with it."""
        if topic is None:
            self._topics.pop(name, None)
            self._bytes.forget("topic", name)
            self._records.forget("topic", name)
