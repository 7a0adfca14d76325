"""Metrics that cost nothing to count: plain integers on the hot path, Prometheus only when it is scraped.

Names are kafscale_<service>_<noun>_<unit>. Values are read in a thread while the loop goes on counting;
a value may be one count behind, never torn.
"""

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

CHILDREN_MAX: Final = 1_000
OVERFLOW: Final = "other"
SECONDS_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BYTES_BOUNDS: Final = (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


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

    def buckets(self) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), tuple(self.counts), strict=True):
            running += count
            rows.append((bound if bound == "+Inf" else str(float(bound)), running))
        return rows


Child = TypeVar("Child", Tally, Level, Distribution)


class Family(Generic[Child]):
    """One name, a child per combination of label values: look it up once and keep it."""

    __slots__ = ("_children", "_labels", "_make")

    def __init__(self, labels: Sequence[str], make: Callable[[], Child]) -> None:
        self._labels = tuple(labels)
        self._make: Callable[[], Child] = make
        self._children: dict[tuple[str, ...], Child] = {}

    def labels(self, *values: object) -> Child:
        """Past CHILDREN_MAX combinations they are counted together, so that a client cannot grow us."""
        key = tuple(map(str, values))
        child = self._children.get(key)
        if child is None:
            assert len(key) == len(self._labels), f"labels are {self._labels}"
            if len(self._children) >= CHILDREN_MAX:
                key = (OVERFLOW,) * len(key)
            child = self._children.setdefault(key, self._make())
        return child

    def rows(self) -> list[tuple[tuple[str, ...], Child]]:
        return list(self._children.items())


Row = tuple[Sequence[str], float | Distribution]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One metric: what /metrics says of it, and how its values are read, by the values of its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    text: str
    labels: Sequence[str] = ()
    rows: Callable[[], Iterable[Row]]


class Metrics:
    """All metrics of a process. `sources` are read at each scrape; nothing of Prometheus is loaded before the first."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.sources: dict[str, Source] = {}

    def counter(self, name: str, text: str) -> Tally:
        return self.counters(name, text, ()).labels()

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Family[Tally]:
        family: Family[Tally] = Family(labels, Tally)
        self._add("counter", name, text, lambda: ((v, tally.value) for v, tally in family.rows()), labels)
        return family

    def gauge(self, name: str, text: str) -> Level:
        return self.gauges(name, text, ()).labels()

    def gauges(self, name: str, text: str, labels: Sequence[str]) -> Family[Level]:
        family: Family[Level] = Family(labels, Level)
        self._add("gauge", name, text, lambda: ((v, level.value) for v, level in family.rows()), labels)
        return family

    def histogram(self, name: str, text: str, bounds: Sequence[float] = SECONDS_BOUNDS) -> Distribution:
        return self.histograms(name, text, (), bounds).labels()

    def histograms(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float] = SECONDS_BOUNDS
    ) -> Family[Distribution]:
        family: Family[Distribution] = Family(labels, lambda: Distribution(bounds))
        self._add("histogram", name, text, family.rows, labels)
        return family

    def watch_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read where it lives."""
        self._add("gauge", name, text, lambda: [((), read())])

    def watch_counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A counter that is counted elsewhere."""
        self._add("counter", name, text, lambda: [((), read())])

    def watch_counters(
        self, name: str, text: str, label: str, read: Callable[[], Iterator[tuple[str, float]]]
    ) -> None:
        """Counters that are counted elsewhere, one per value of a label."""
        self._add("counter", name, text, lambda: (((value,), count) for value, count in read()), (label,))

    def _add(
        self,
        kind: Literal["counter", "gauge", "histogram"],
        name: str,
        text: str,
        rows: Callable[[], Iterable[Row]],
        labels: Sequence[str] = (),
    ) -> None:
        assert _NAME.fullmatch(name), f"{name!r} is no metric name"
        full_name = f"kafscale_{self.service}_{name}"
        assert full_name not in self.sources, f"{full_name} is there already"
        self.sources[full_name] = Source(kind=kind, name=full_name, text=text, labels=labels, rows=rows)
