"""The text of /metrics for one process, and the merged text of several worker processes.

Counters and histograms of workers are added. A gauge describes one process only, so each of its samples keeps a
`worker` label.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafscale.runtime.metrics import Distribution, Reading
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL_LENGTH_MAX: Final = 256
"""Characters. A topic's name has at most 249; names of groups and clients may be far longer."""

_ADDED: Final = frozenset({"counter", "histogram", "summary"})


class _Fixed(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def expose(readings: Sequence[Reading]) -> bytes:
    """The text of one process. It takes milliseconds: call it in a thread."""
    return generate_latest(registry_of(readings))


def registry_of(readings: Sequence[Reading]) -> CollectorRegistry:
    """The readings, with the process metrics of Prometheus' own client."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Fixed(map(family_of, readings)))
    return registry


def family_of(reading: Reading) -> Metric:
    name, row = reading.name, reading.row
    if row.kind == "histogram":
        histogram = HistogramMetricFamily(name, row.text, labels=row.labels)
        for values, value in reading.values:
            assert isinstance(value, Distribution), "a histogram's values are distributions"
            histogram.add_metric(label_values(values), value.buckets(), value.total)
        return histogram
    make = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
    family = make(name, row.text, labels=row.labels)
    for values, value in reading.values:
        assert not isinstance(value, Distribution), "only a histogram's values are distributions"
        family.add_metric(label_values(values), value)
    return family


def label_values(values: Iterable[str]) -> list[str]:
    """Each value cut to LABEL_LENGTH_MAX. A digest keeps long names with the same beginning apart."""
    return [value if len(value) <= LABEL_LENGTH_MAX else _cut(value) for value in values]


def _cut(value: str) -> str:
    digest = hashlib.blake2b(value.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{value[: LABEL_LENGTH_MAX - len(digest) - 1]}~{digest}"


def merge_expositions(texts: Mapping[str, bytes]) -> bytes:
    """One text from the texts of workers. `texts` maps the worker's name to its text."""
    merged: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for worker, text in texts.items():
        for family in text_string_to_metric_families(text.decode()):
            if family.name not in merged:
                merged[family.name] = Metric(family.name, family.documentation, family.type)
                sums[family.name] = {}
            if family.type in _ADDED:
                for sample in family.samples:
                    key = (sample.name, tuple(sorted(sample.labels.items())))
                    sums[family.name][key] = sums[family.name].get(key, 0.0) + sample.value
            else:
                for sample in family.samples:
                    labels = {**sample.labels, "worker": worker}
                    merged[family.name].add_sample(sample.name, labels, sample.value)
    for name, rows in sums.items():
        for (sample_name, label_items), value in rows.items():
            merged[name].add_sample(sample_name, dict(label_items), value)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(sorted(merged.values(), key=lambda family: family.name)))
    return generate_latest(registry)
